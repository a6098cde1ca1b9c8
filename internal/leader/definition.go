package leader

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

// Definition is what is known of a tool, with its schemas compiled (S1.7). It is never changed, and safe for
// concurrent use.
type Definition struct {
	FQN         FQN
	URL         string // below which /meta, /health and /invoke are (S1.10)
	Description string
	Timeout     time.Duration // of a call
	MaxAnswer   int           // bytes of an answer that are read
	Sign        string        // how calls are signed: SignEd25519, or "" for not at all
	Input       *Schema
	Output      *Schema
}

// Offchain is the only type of tool that is called from here; the other one is a chain's client's part.
const Offchain = "offchain"

// SignEd25519 has each call of a tool signed with the key of the installation (S1.10).
const SignEd25519 = "ed25519"

// Defaults and limits of a tool's settings.
const (
	DefaultTimeout   = 30 * time.Second
	MaxTimeout       = 10 * time.Minute
	DefaultMaxAnswer = 1 << 20
	LargestMaxAnswer = 10 << 20
	DefaultTTL       = 5 * time.Minute
	maxDescription   = 4096
)

const noOneOf = "The tool meta does not contain a top-level 'oneOf' key. Please make sure to use an enum as the Tool output type."

// Meta is a definition as it is written: by a tool that answers GET /meta, or by who registers one.
type Meta struct {
	FQN          string          `json:"fqn"`
	Type         string          `json:"type"` // "" is Offchain
	URL          string          `json:"url"`
	Description  string          `json:"description"`
	Timeout      string          `json:"timeout"` // "" or a duration: "30s"
	MaxAnswer    int             `json:"max_answer"`
	Sign         string          `json:"sign"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema"`
}

// ReadMeta reads a meta document without judging what it says.
func ReadMeta(raw []byte) (Meta, error) {
	doc, err := decode(raw)
	if err != nil {
		return Meta{}, fault.At("", "the meta document is no JSON: %s", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return Meta{}, fault.At("", "the meta document is no object")
	}
	var m Meta
	if err := strict.Read(raw, &m); err != nil {
		if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
			return Meta{}, fault.At("/"+strings.ReplaceAll(e.Field, ".", "/"), "%s is a %s: want a %s", fault.Clip(e.Field), e.Value, e.Type.Kind())
		}
		return Meta{}, fault.At("", "the meta document cannot be read: %s", fault.Clip(err.Error()))
	}
	return m, nil
}

// Definition judges and compiles what a meta says.
func (m Meta) Definition() (*Definition, error) {
	fqn, err := ParseFQN(m.FQN)
	if err != nil {
		return nil, err
	}
	d := &Definition{FQN: fqn, URL: m.URL, Description: m.Description, Timeout: DefaultTimeout, MaxAnswer: DefaultMaxAnswer, Sign: m.Sign}
	if m.Type != "" && m.Type != Offchain {
		return nil, fault.At("/type", "a tool of type %q is not called from here: want %s", fault.Clip(m.Type), Offchain)
	}
	if m.Sign != "" && m.Sign != SignEd25519 {
		return nil, fault.At("/sign", "sign %q: want %s, or nothing for calls that are not signed", fault.Clip(m.Sign), SignEd25519)
	}
	if err := toolURL(m.URL); err != nil {
		return nil, err
	}
	if len(m.Description) > maxDescription || !utf8.ValidString(m.Description) || strings.ContainsRune(m.Description, 0) {
		return nil, fault.At("/description", "a description of %d bytes: want at most %d, without NUL", len(m.Description), maxDescription)
	}
	if m.Timeout != "" {
		if d.Timeout, err = time.ParseDuration(m.Timeout); err != nil || d.Timeout <= 0 || d.Timeout > MaxTimeout {
			return nil, fault.At("/timeout", "timeout %q: want a duration such as \"30s\", at most 10m", fault.Clip(m.Timeout))
		}
	}
	if m.MaxAnswer != 0 {
		if d.MaxAnswer = m.MaxAnswer; d.MaxAnswer < 1024 || d.MaxAnswer > LargestMaxAnswer {
			return nil, fault.At("/max_answer", "max_answer %d: want 1024 to %d bytes", m.MaxAnswer, LargestMaxAnswer)
		}
	}
	if len(m.InputSchema) == 0 {
		return nil, fault.At("/input_schema", "input_schema is missing: want a JSON Schema")
	}
	if d.Input, err = NewSchema("/input_schema", m.InputSchema); err != nil {
		return nil, err
	}
	if len(m.OutputSchema) == 0 {
		return nil, fault.At("/output_schema", "output_schema is missing: want a JSON Schema with a top-level 'oneOf'")
	}
	if d.Output, err = NewSchema("/output_schema", m.OutputSchema); err != nil {
		return nil, err
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(m.OutputSchema, &top) != nil || top["oneOf"] == nil {
		return nil, fault.At("/output_schema", noOneOf)
	}
	return d, nil
}

// Reachable judges where a tool is said to be.
func (m Meta) Reachable() error { return toolURL(m.URL) }

// Discover is the definition of a tool by the answer of its /meta, and by own. own says its URL and its name; of type,
// timeout, max_answer and sign, a value in own goes before that of /meta. A /meta that names another tool, or another
// version of it, is Invalid: the tool that is called under a name is the one that was registered under it.
func Discover(raw []byte, own Meta) (*Definition, error) {
	m, err := ReadMeta(raw)
	if err != nil {
		return nil, told(err)
	}
	fqn, err := ParseFQN(m.FQN)
	if err != nil {
		return nil, told(err)
	}
	if fqn.String() != own.FQN {
		return nil, fault.At("/fqn", "the tool's /meta: it is %s by now, and not %s: register that one", fqn, own.FQN)
	}
	m.URL = own.URL
	if own.Type != "" {
		m.Type = own.Type
	}
	if m.Description == "" {
		m.Description = own.Description
	}
	if own.Timeout != "" {
		m.Timeout = own.Timeout
	}
	if own.MaxAnswer != 0 {
		m.MaxAnswer = own.MaxAnswer
	}
	if own.Sign != "" {
		m.Sign = own.Sign
	}
	d, err := m.Definition()
	if err != nil {
		return nil, told(err)
	}
	return d, nil
}

// told says that the tool itself has said what is wrong.
func told(err error) error {
	f := *fault.As(err)
	at := ""
	if len(f.Fields) > 0 && f.Fields[0].Pointer != "" && !strings.HasPrefix(f.Detail, "/") {
		at = f.Fields[0].Pointer + ": "
	}
	f.Detail = Printable("the tool's /meta: " + at + f.Detail)
	return &f
}

func toolURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || len(s) > 2000 || strings.ContainsRune(s, 0) {
		return fault.At("/url", "url %q: want http(s)://host[:port][/path]", fault.Clip(s))
	}
	return nil
}

// ValidateInput says what keeps data from being given to the tool, nil for nothing: Invalid
// "schema_mismatch" with pointers into the data.
func (d *Definition) ValidateInput(raw json.RawMessage) error {
	if err := d.Input.Check(raw); err != nil {
		return mismatch(err, "Input data does not match the input schema: %s", err)
	}
	return nil
}

// ValidateOutput returns the variant of what a tool has answered: its one top-level key. Else what is wrong
// with it, as ValidateInput does.
func (d *Definition) ValidateOutput(raw json.RawMessage) (variant string, err error) {
	top, err := strict.Object(raw)
	if err != nil || len(top) != 1 {
		return "", mismatch(nil, "tool output must contain exactly one variant")
	}
	for name, payload := range top {
		if variant = name; len(payload) == 0 || payload[0] != '{' {
			return "", mismatch(nil, "payload must be an object")
		}
	}
	if err := d.Output.Check(raw); err != nil {
		return "", mismatch(err, "Output data does not match the output schema: %s", err)
	}
	return variant, nil
}

// answers says whether a body is an answer of the tool: one variant that its output schema names, with an object.
func (d *Definition) answers(body []byte) bool {
	top, err := strict.Object(body)
	if err != nil || len(top) != 1 {
		return false
	}
	names := d.Output.variants()
	for name, payload := range top {
		return len(payload) > 0 && payload[0] == '{' && (names == nil || names[name])
	}
	return false
}

// variants are the properties that the branches of the top-level oneOf name, themselves or behind a reference; nil
// where one of them names none, since any may be there then.
func (s *Schema) variants() map[string]bool {
	type branch struct {
		Ref        string                     `json:"$ref"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	var top struct {
		OneOf []json.RawMessage `json:"oneOf"`
	}
	if strict.Read(s.raw, &top) != nil || len(top.OneOf) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, raw := range top.OneOf {
		var b branch
		for range maxLevels { // references may lead in a circle
			b = branch{}
			if strict.Read(raw, &b) != nil {
				return nil
			}
			if b.Ref == "" || len(b.Properties)+len(b.Required) > 0 || !strings.HasPrefix(b.Ref, "#/") {
				break
			}
			raw = at(s.raw, fragment(b.Ref))
		}
		if len(b.Properties)+len(b.Required) == 0 {
			return nil
		}
		for name := range b.Properties {
			names[name] = true
		}
		for _, name := range b.Required {
			names[name] = true
		}
	}
	return names
}

func mismatch(cause error, format string, args ...any) error {
	f := fault.New(fault.Invalid, "schema_mismatch", format, args...)
	var m *Mismatch
	if errors.As(cause, &m) {
		f.Fields = m.Fields
	}
	return f
}
