package leader

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Defaults of a new source (S1.1, S1.5).
const (
	DefaultBuffer     = 100
	DefaultMaxRetries = 10 // over 13 minutes: as long as a proxy before a tool may take to be mended
)

// hole is a place of a URL template that a value of the event fills.
var hole = regexp.MustCompile(`\{(/[^{}]*)\}`)

func (m SourceMap) checkInput() error {
	places := []string{m.Input}
	if m.Input != "" && m.Input[0] != '/' {
		places = nil
		for _, h := range hole.FindAllStringSubmatch(m.Input, -1) {
			places = append(places, h[1])
		}
	}
	for _, p := range places {
		if err := outbox.Pointer(p).Check(); err != nil {
			return fault.At("/map/input", "map.input %q: %s", fault.Clip(m.Input), err)
		}
	}
	if m.Input == "" || m.Input[0] == '/' {
		return nil
	}
	u, err := url.Parse(hole.ReplaceAllString(m.Input, "x"))
	other, otherErr := url.Parse(hole.ReplaceAllString(m.Input, "y")) // another event leads to the same host
	if err != nil || otherErr != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		strings.ContainsAny(u.String(), "{}") || u.Host != other.Host || u.User.String() != other.User.String() {
		return fault.At("/map/input", "map.input %q: want a JSON pointer, or a URL such as https://host/inputs/{/walk}, with {/pointer} behind the host only", fault.Clip(m.Input))
	}
	return nil
}

// InputOf says what the tool is given for an event: the data, or the URL from which it is to be fetched. A fault
// says why there is neither: the event has nothing there, and will not have.
func (m SourceMap) InputOf(event json.RawMessage) (data json.RawMessage, from string, err error) {
	if m.Input == "" {
		return event, "", nil
	}
	if m.Input[0] == '/' {
		if data = at(event, m.Input); data == nil {
			return nil, "", fault.New(fault.Invalid, "no_input", "the event has no input at %s", m.Input)
		}
		return data, "", nil
	}
	missing := ""
	from = hole.ReplaceAllStringFunc(m.Input, func(h string) string {
		text, ok := scalar(at(event, h[1:len(h)-1]))
		if !ok {
			missing = h[1 : len(h)-1]
		}
		return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	})
	if missing != "" {
		return nil, "", fault.New(fault.Invalid, "no_input",
			"the event has neither a string nor a number at %s, which the URL of its input names", missing)
	}
	return nil, from, nil
}
