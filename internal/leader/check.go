package leader

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/postern-dev/postern/internal/fault"
)

// checker is a compiled schema that counts what a check costs. A schema of a few lines can branch without end
// (anyOf over references to anyOf over references ...), and the library cannot be interrupted; so every
// application of a schema to a value is paid for before it is done, and who cannot pay stops by a panic,
// which check recovers.
type checker struct {
	schema *jsonschema.Schema
	all    []*jsonschema.Schema // every one in it that was compiled
	left   int                  // units of work; one is well below a microsecond
}

// spent is the panic of a check that takes too long.
type spent struct{}

func (c *checker) pay(n int) {
	if c.left -= n; c.left < 0 {
		panic(spent{})
	}
}

// Limits of the cost of a check: enough for real documents, and seconds at worst.
const (
	basicUnits   = 200_000
	unitsPerByte = 16
	mostUnits    = 10_000_000
)

var errSpent = errors.New("checking it takes too long: the schema branches too often for a document of this size")

// base is the name under which a schema is compiled.
const base = "postern:///schema"

// never loads nothing.
type never struct{}

func (never) Load(string) (any, error) { return nil, errors.New("nothing is loaded") }

func compile(raw []byte) (c *checker, err error) {
	c = &checker{}
	defer func() {
		switch e := recover(); e.(type) {
		case nil:
		case spent:
			err = errSpent
		default: // a flaw of the library is not the end of the process
			err = fmt.Errorf("the schema cannot be compiled: %v", e)
		}
	}()
	c.left = 100 * basicUnits // patterns are tried while the schema itself is checked
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	lib := jsonschema.NewCompiler()
	lib.DefaultDraft(jsonschema.Draft2020)
	lib.UseLoader(never{})
	lib.UseRegexpEngine(c.pattern)
	lib.RegisterVocabulary(&jsonschema.Vocabulary{URL: base + "/meter", Compile: c.enlist})
	lib.AssertVocabs()
	if err := lib.AddResource(base, doc); err != nil {
		return nil, err
	}
	if c.schema, err = lib.Compile(base); err != nil {
		return nil, err
	}
	dynamic := 0
	for _, s := range c.all {
		if s.DynamicAnchor != "" {
			dynamic = max(dynamic, cost(s))
		}
	}
	for _, s := range c.all {
		c.meter(s, dynamic)
	}
	c.all = nil
	return c, nil
}

// enlist is asked about every schema object that is compiled.
func (c *checker) enlist(ctx *jsonschema.CompilerContext, _ map[string]any) (jsonschema.SchemaExt, error) {
	c.all = append(c.all, ctx.Enqueue(nil))
	return nil, nil
}

// check holds a document of so many bytes against the schema.
func (c *checker) check(doc any, bytes int) (err error) {
	defer func() {
		switch e := recover(); e.(type) {
		case nil:
		case spent:
			err = errSpent
		default:
			err = fmt.Errorf("it cannot be checked: %v", e)
		}
	}()
	c.left = min(basicUnits+unitsPerByte*bytes, mostUnits)
	c.pay(cost(c.schema))
	err = c.schema.Validate(doc)
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return err
	}
	m := &Mismatch{}
	for _, leaf := range leaves(v, maxMismatch) {
		m.Fields = append(m.Fields, fault.Field{Pointer: pointer(leaf.InstanceLocation),
			Code: "schema_mismatch", Detail: reason(leaf)})
	}
	return m
}

// Mismatch is what does not fit, up to three places of it: the pointers lead into the document.
type Mismatch struct{ Fields []fault.Field }

// Error is one sentence about all of them.
func (m *Mismatch) Error() string {
	var said []string
	for _, f := range m.Fields {
		at := fault.Clip(f.Pointer)
		if at == "" {
			at = "the document"
		}
		said = append(said, at+": "+f.Detail)
	}
	return strings.Join(said, "; ")
}

// leaves are the first n mismatches that have no further cause.
func leaves(v *jsonschema.ValidationError, n int) []*jsonschema.ValidationError {
	if len(v.Causes) == 0 {
		return []*jsonschema.ValidationError{v}
	}
	var list []*jsonschema.ValidationError
	for _, cause := range v.Causes {
		if list = append(list, leaves(cause, n-len(list))...); len(list) >= n {
			return list[:n]
		}
	}
	return list
}

// reason is a mismatch in words, without its place and without the value that stands there: it is read by people who
// may not see bodies.
func reason(v *jsonschema.ValidationError) string {
	switch k := v.ErrorKind.(type) {
	case *kind.FalseSchema:
		return "nothing is allowed here"
	case *kind.Format:
		if text, ok := k.Got.(string); ok && k.Want == "regex" {
			return unrunnable(text, k.Err)
		}
	case *kind.Pattern:
		return fmt.Sprintf("does not match the pattern %q", fault.Clip(k.Want))
	case *kind.Minimum:
		return bound("minimum", k.Want)
	case *kind.Maximum:
		return bound("maximum", k.Want)
	case *kind.ExclusiveMinimum:
		return bound("exclusiveMinimum", k.Want)
	case *kind.ExclusiveMaximum:
		return bound("exclusiveMaximum", k.Want)
	case *kind.MultipleOf:
		return bound("multipleOf", k.Want)
	case *kind.Enum:
		if len(k.Want) > 8 {
			return fmt.Sprintf("is none of the %d values that are allowed", len(k.Want))
		}
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return "more than one of oneOf matches"
		}
	}
	alone := &jsonschema.ValidationError{SchemaURL: v.SchemaURL, InstanceLocation: nil, ErrorKind: v.ErrorKind}
	text := strings.TrimPrefix(alone.Error(), "at '': ")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:197]) + "..."
	}
	return text
}

func bound(keyword string, n *big.Rat) string {
	f, _ := n.Float64()
	return fmt.Sprintf("%s: want %v", keyword, f)
}

// unrunnable says what is wrong with a pattern.
func unrunnable(pattern string, err error) string {
	return fmt.Sprintf("the pattern %q cannot be run (RE2): %s", fault.Clip(pattern), fault.Clip(err.Error()))
}

// meter makes a schema pay for what it does. The hook is the keyword format, which the library asks before
// anything that costs; formats themselves are annotations in this draft.
func (c *checker) meter(s *jsonschema.Schema, dynamic int) {
	once, each := 1, 0 // for the value itself, and for each of its members
	for _, child := range within(s) {
		once += cost(child)
	}
	if s.DynamicRef != nil {
		once += dynamic
	}
	for _, child := range below(s) {
		each += cost(child)
	}
	for _, child := range single(s) {
		once += cost(child) - 1
	}
	unique := s.UniqueItems
	s.Format = &jsonschema.Format{Name: "postern", Validate: func(v any) error {
		switch v := v.(type) {
		case map[string]any:
			c.pay(once + len(v)*each + len(v)/8)
		case []any:
			c.pay(once + len(v)*each + len(v)/8)
			if unique {
				c.pay(size(v) * (4 + min(len(v), 20)))
			}
		case string:
			c.pay(once + len(v)/256)
		default:
			c.pay(once)
		}
		return nil
	}}
}

// cost is what a schema costs before its own hook is asked: comparing with const and enum.
func cost(s *jsonschema.Schema) int {
	n := 1
	if s == nil {
		return n
	}
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			n += size(v)
		}
	}
	if s.Const != nil {
		n += size(*s.Const)
	}
	return n
}

// size is the number of values in v.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, m := range v {
			n += size(m)
		}
	case []any:
		for _, m := range v {
			n += size(m)
		}
	}
	return n
}

// within are the schemas that s applies to the same value.
func within(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.ContentSchema}
	list = append(append(append(list, s.AllOf...), s.AnyOf...), s.OneOf...)
	for _, d := range s.DependentSchemas {
		list = append(list, d)
	}
	for _, d := range s.Dependencies {
		if d, ok := d.(*jsonschema.Schema); ok {
			list = append(list, d)
		}
	}
	return present(list)
}

// below are those that it applies to every member.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems}
	for _, v := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			list = append(list, v)
		case []*jsonschema.Schema:
			list = append(list, v...)
		}
	}
	for _, p := range s.PatternProperties {
		list = append(list, p)
	}
	return present(list)
}

// single are those that it applies to one member each.
func single(s *jsonschema.Schema) []*jsonschema.Schema {
	list := append([]*jsonschema.Schema(nil), s.PrefixItems...)
	for _, p := range s.Properties {
		list = append(list, p)
	}
	return present(list)
}

func present(list []*jsonschema.Schema) []*jsonschema.Schema {
	n := 0
	for _, s := range list {
		if s != nil {
			list[n] = s
			n++
		}
	}
	return list[:n]
}

// metered is a pattern that pays for its matches.
type metered struct {
	*regexp.Regexp
	c    *checker
	size int // instructions: a match takes time by this and by the length of the text
}

// maxPattern is how many instructions a pattern may have.
const maxPattern = 10_000

func (c *checker) pattern(s string) (jsonschema.Regexp, error) {
	parsed, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxPattern {
		return nil, fmt.Errorf("it is too large")
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, err
	}
	return &metered{re, c, len(program.Inst)}, nil
}

func (m *metered) MatchString(s string) bool {
	m.c.pay(1 + m.size/16 + len(s)*m.size/8)
	return m.Regexp.MatchString(s)
}
