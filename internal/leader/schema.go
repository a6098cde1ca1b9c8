package leader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/postern-dev/postern/internal/fault"
)

// Limits of a schema (S1.9). Its author is not trusted: it is run on our processors.
const (
	draft       = "https://json-schema.org/draft/2020-12/schema"
	maxSchema   = 64 << 10 // bytes
	maxLevels   = 64       // of nesting, of a schema and of what it is held against
	maxRefs     = 1000
	maxDigits   = 1000 // of a number, and of its exponent's value: beyond, arithmetic takes seconds
	maxMismatch = 3    // sentences about what does not fit
)

// Schema is a JSON Schema that was found fit to be run. It is safe for concurrent use.
type Schema struct {
	raw json.RawMessage

	mu   sync.Mutex
	free []*checker // compiled, and not in use
}

// NewSchema reads a schema of draft 2020-12. References lead to places within it: nothing is ever loaded.
// Invalid with the JSON pointer of what is wrong, which begins with at.
func NewSchema(at string, raw json.RawMessage) (*Schema, error) {
	if len(raw) > maxSchema {
		return nil, wrong(at, "the schema has %d bytes, at most %d are run", len(raw), maxSchema)
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, wrong(at, "the schema is no JSON: %s", err)
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, wrong(at, "a schema is an object or a boolean")
	}
	l := look{at: at, schema: true}
	if err := l.walk(doc, "", 1, true); err != nil {
		return nil, err
	}
	s := &Schema{raw: raw}
	c, err := compile(raw)
	if err != nil {
		return nil, l.place(err)
	}
	s.free = append(s.free, c)
	return s, nil
}

// StoredSchema reads what NewSchema has found fit, as the database has kept it: in jsonb's words it may be longer than
// it was, with more digits, so that no bound is held against it again.
func StoredSchema(at string, raw json.RawMessage) (*Schema, error) {
	c, err := compile(raw)
	if err != nil {
		return nil, (&look{at: at}).place(err)
	}
	return &Schema{raw: raw, free: []*checker{c}}, nil
}

// Raw is the schema as it was written.
func (s *Schema) Raw() json.RawMessage { return s.raw }

// Check says what does not fit in a document: nil if all does, else a sentence with JSON pointers into it.
// A document that would take too long to check does not fit either: the time is bounded by its length.
func (s *Schema) Check(raw json.RawMessage) error {
	doc, err := decode(raw)
	if err != nil {
		return fmt.Errorf("it is no JSON: %s", err)
	}
	if err := (&look{}).walk(doc, "", 1, false); err != nil {
		return err
	}
	c, err := s.take()
	if err != nil {
		return err
	}
	defer s.give(c)
	return c.check(doc, len(raw))
}

// take finds a checker that is not in use, since each counts the work of one check. Compiling a schema that was
// compiled before does not fail.
func (s *Schema) take() (*checker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		c := s.free[n-1]
		s.free = s.free[:n-1]
		return c, nil
	}
	return compile(s.raw)
}

func (s *Schema) give(c *checker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < 8 {
		s.free = append(s.free, c)
	}
}

// decode reads one JSON document with all digits of its numbers.
func decode(raw []byte) (any, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, errors.New(fault.Clip(err.Error()))
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the document")
	}
	return doc, nil
}

// look goes through a document before it is given to anybody.
type look struct {
	at     string
	schema bool
	refs   []place
	names  []place // of patternProperties: the library does not say where they stand
}

// place is where a reference stands, and where it leads.
type place struct{ at, to string }

// plain are the keywords whose values are data, whatever they look like.
var plain = map[string]bool{"const": true, "enum": true, "default": true, "examples": true}

// walk refuses what is nested too deep, numbers that no machine reckons with and, in a schema, another draft
// and references beyond counting. keywords: the members of v are keywords, not names of somebody's properties.
func (l *look) walk(v any, at string, level int, keywords bool) error {
	if level > maxLevels {
		return wrong(l.at+at, "nested deeper than %d levels", maxLevels)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			here := at + "/" + escape(name)
			text, isText := member.(string)
			if patterns, ok := member.(map[string]any); ok && l.schema && keywords && name == "patternProperties" {
				for pattern := range patterns {
					l.names = append(l.names, place{here + "/" + escape(pattern), pattern})
				}
			}
			if l.schema && keywords && isText {
				switch name {
				case "$schema":
					if strings.TrimSuffix(text, "#") != draft {
						return wrong(l.at+here, "$schema %q: want %s", fault.Clip(text), draft)
					}
				case "$ref", "$dynamicRef":
					if l.refs = append(l.refs, place{here, text}); len(l.refs) > maxRefs {
						return wrong(l.at+here, "the schema has more than %d references", maxRefs)
					}
				}
			}
			if err := l.walk(member, here, level+1, !plain[name] || !keywords); err != nil {
				return err
			}
		}
	case []any:
		for i, member := range v {
			if err := l.walk(member, at+"/"+strconv.Itoa(i), level+1, keywords); err != nil {
				return err
			}
		}
	case json.Number:
		if !reckonable(string(v)) {
			return wrong(l.at+at, "the number is beyond what is reckoned with: want at most %d digits", maxDigits)
		}
	}
	return nil
}

func reckonable(n string) bool {
	if len(n) > maxDigits {
		return false
	}
	if i := strings.IndexAny(n, "eE"); i >= 0 {
		e, err := strconv.Atoi(strings.TrimPrefix(n[i+1:], "+"))
		return err == nil && -maxDigits <= e && e <= maxDigits
	}
	return true
}

// place finds where in the document a schema is wrong, and says what is.
func (l *look) place(err error) error {
	var form *jsonschema.SchemaValidationError
	var pattern *jsonschema.InvalidRegexError
	var nowhere *jsonschema.JSONPointerNotFoundError
	var anchor *jsonschema.AnchorNotFoundError
	var outside *jsonschema.LoadURLError
	switch {
	case errors.As(err, &form):
		var v *jsonschema.ValidationError
		if errors.As(form.Err, &v) {
			leaf := leaves(v, 1)[0]
			if f, ok := leaf.ErrorKind.(*kind.Format); ok {
				for _, n := range l.names {
					if n.to == f.Got {
						return wrong(l.at+n.at, "%s", reason(leaf))
					}
				}
			}
			return wrong(l.at+fragment(form.URL)+pointer(leaf.InstanceLocation),
				"this is no schema of draft 2020-12: %s", reason(leaf))
		}
	case errors.As(err, &pattern):
		return wrong(l.at+fragment(pattern.URL), "%s", unrunnable(pattern.Regex, pattern.Err))
	case errors.As(err, &nowhere):
		return l.reference(func(to string) bool { return fragment(to) == fragment(nowhere.URL) }, "leads nowhere")
	case errors.As(err, &anchor):
		return l.reference(func(to string) bool { return fragment(to) == fragment(anchor.Reference) }, "leads nowhere")
	case errors.As(err, &outside):
		return l.reference(func(to string) bool { return !strings.HasPrefix(to, "#") },
			"leads out of the schema: nothing is loaded")
	}
	return wrong(l.at, "the schema cannot be run: %s", fault.Clip(strings.ReplaceAll(err.Error(), base, "")))
}

// wrong is a fault whose sentence begins with its pointer.
func wrong(pointer, format string, args ...any) error {
	if pointer == "" {
		return fault.At(pointer, format, args...)
	}
	return fault.At(pointer, "%s: %s", fault.Clip(pointer), fmt.Sprintf(format, args...))
}

func (l *look) reference(is func(to string) bool, what string) error {
	for _, r := range l.refs {
		if is(r.to) {
			return wrong(l.at+r.at, "the reference %q %s", fault.Clip(r.to), what)
		}
	}
	return wrong(l.at, "a reference in the schema %s", what)
}

// fragment is what stands behind # in a URL, decoded.
func fragment(u string) string {
	_, f, _ := strings.Cut(u, "#")
	if plain, err := url.PathUnescape(f); err == nil {
		return plain
	}
	return f
}

func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + escape(t))
	}
	return b.String()
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(token string) string { return escaper.Replace(token) }
