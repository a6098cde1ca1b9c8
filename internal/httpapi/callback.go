package httpapi

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// callbackInput is where the end of one transaction is to be told.
type callbackInput struct {
	URL string   `json:"url" maxLength:"2000"`
	On  []string `json:"on,omitempty" maxItems:"4" doc:"DONE, FAILED, UNRESOLVED, CANCELLED; empty: any of them."`
}

// callback checks what a schema cannot say.
func (c *callbackInput) callback() (*outbox.Callback, error) {
	if c == nil {
		return nil, nil
	}
	if err := checkEndpoint("/callback/url", c.URL); err != nil {
		return nil, err
	}
	v := &outbox.Callback{URL: c.URL}
	for i, s := range c.On {
		if !outbox.State(s).Terminal() {
			return nil, fault.At("/callback/on/"+itoa(i),
				"on %q: want DONE, FAILED, UNRESOLVED or CANCELLED", fault.Clip(s))
		}
		v.On = append(v.On, outbox.State(s))
	}
	return v, nil
}
