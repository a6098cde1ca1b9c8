package signature

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/postern-dev/postern/internal/fault"
)

// Signature is one signature of a request, as its headers say it.
type Signature struct {
	Label            string
	KeyID            string
	Alg              string // "" where it does not say
	Nonce            string // "" where it does not say
	Created, Expires time.Time

	covered []string
	params  string // with the list of components, as they are signed
	value   []byte
}

// most is how many signatures a request may carry.
const most = 8

// Parse reads the signatures of a request, in the order of Signature-Input; none where it has neither header. The error
// is a sentence for the one who sent it.
func Parse(header http.Header) (list []*Signature, err error) {
	inputs, values := header.Values("Signature-Input"), header.Values("Signature")
	if len(inputs)+len(values) == 0 {
		return nil, nil
	}
	input, err := dictionary("Signature-Input", inputs)
	if err != nil {
		return nil, err
	}
	value, err := dictionary("Signature", values)
	if err != nil {
		return nil, err
	}
	names := input.Names()
	if len(names) == 0 || len(names) > most {
		return nil, fmt.Errorf("Signature-Input has %d signatures: want 1 to %d", len(names), most)
	}
	for _, label := range value.Names() {
		if !slices.Contains(names, label) {
			return nil, fmt.Errorf("Signature has %s, which Signature-Input has not", fault.Clip(label))
		}
	}
	for _, label := range names {
		s, err := parse(label, input, value)
		if err != nil {
			return nil, fmt.Errorf("signature %s: %w", fault.Clip(label), err)
		}
		list = append(list, s)
	}
	return list, nil
}

func parse(label string, input, value *httpsfv.Dictionary) (s *Signature, err error) {
	member, _ := input.Get(label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		return nil, errors.New(`Signature-Input has no list of components, such as ("@method" "@target-uri")`)
	}
	s = &Signature{Label: label}
	for _, item := range list.Items {
		name, ok := item.Value.(string)
		switch {
		case !ok:
			return nil, errors.New("a component is no text")
		case len(item.Params.Names()) > 0:
			return nil, fmt.Errorf("component %q has the parameter %s: none is known here",
				fault.Clip(name), fault.Clip(item.Params.Names()[0]))
		case slices.Contains(s.covered, name):
			return nil, fmt.Errorf("component %q is there twice", fault.Clip(name))
		case strings.HasPrefix(name, "@") && derived[name] == nil:
			return nil, fmt.Errorf("component %q is not known here", fault.Clip(name))
		case name == "" || name != strings.ToLower(name):
			return nil, fmt.Errorf("component %q: want the name of a header in lower case", fault.Clip(name))
		}
		s.covered = append(s.covered, name)
	}
	if err := s.read(list.Params); err != nil {
		return nil, err
	}
	if s.params, err = httpsfv.Marshal(list); err != nil {
		return nil, err
	}
	member, _ = value.Get(label)
	if item, ok := member.(httpsfv.Item); ok {
		s.value, _ = item.Value.([]byte)
	}
	if len(s.value) == 0 {
		return nil, fmt.Errorf("Signature has no %s=:base64:", fault.Clip(label))
	}
	return s, nil
}

// read reads the parameters that this package knows; others are signed, and mean nothing here.
func (s *Signature) read(params *httpsfv.Params) error {
	for _, name := range params.Names() {
		v, _ := params.Get(name)
		ok := true
		switch name {
		case "keyid":
			s.KeyID, ok = v.(string)
		case "alg":
			s.Alg, ok = v.(string)
		case "nonce":
			s.Nonce, ok = v.(string)
		case "created":
			s.Created, ok = moment(v)
		case "expires":
			s.Expires, ok = moment(v)
		}
		if !ok {
			return fmt.Errorf("parameter %s is %q, which is not of its kind: "+
				"created and expires are whole seconds, keyid, alg and nonce texts", name, fault.Clip(fmt.Sprint(v)))
		}
	}
	if s.Expires.IsZero() && !s.Created.IsZero() {
		s.Expires = s.Created.Add(Life)
	}
	return nil
}

// lastMoment bounds moments, in seconds: a later one would not fit into a row.
const lastMoment = 1 << 40

func moment(v any) (time.Time, bool) {
	seconds, ok := v.(int64)
	if !ok || seconds < 0 || seconds > lastMoment {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}

// dictionary reads a header of named members. A parser of structured fields keeps the last of two members or parameters
// of one name; which of them another reader goes by is not known, so that both are refused.
func dictionary(name string, values []string) (*httpsfv.Dictionary, error) {
	d, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return nil, fmt.Errorf("%s is no dictionary of structured fields (RFC 8941): %w", name, err)
	}
	again, err := httpsfv.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("%s is no dictionary of structured fields (RFC 8941): %w", name, err)
	}
	if bare(strings.Join(values, ",")) != bare(again) {
		return nil, fmt.Errorf("%s has a member or a parameter twice, or is not written as RFC 8941 writes it", name)
	}
	return d, nil
}

// bare takes away the blanks between the parts of a structured field; those within texts stay.
func bare(s string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case !quoted && (c == ' ' || c == '\t'):
			continue
		case quoted && c == '\\' && i+1 < len(s):
			b.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
