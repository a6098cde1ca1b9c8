package httpapi

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// finish says in the document what huma's reflection cannot know: that every refusal is the same problem,
// what a further success contains, that any JSON is bytes and not a float64 for a generated client, and
// which objects of an answer may be null.
func (a *API) finish() {
	doc := a.huma.OpenAPI()
	problem := schemaOf[Problem](doc.Components.Schemas)
	doc.Components.Schemas.SchemaFromRef(problem.Ref).AdditionalProperties = true // existing, differs, version, ...
	if doc.Components.Responses == nil {
		doc.Components.Responses = map[string]*huma.Response{}
	}
	doc.Components.Responses["Problem"] = &huma.Response{Description: "Refused, or not possible now: code and retryable say which.",
		Content: map[string]*huma.MediaType{"application/problem+json": {Schema: problem}}}
	for _, item := range doc.Paths {
		for _, op := range methods(item) {
			finishOperation(op)
			for _, p := range op.Parameters {
				plainWords(p.Schema)
			}
			if op.RequestBody != nil {
				for _, m := range op.RequestBody.Content {
					plainWords(m.Schema)
				}
			}
		}
	}
	if err := show(doc); err != nil {
		panic(err) // they are a part of the program
	}
	for name, s := range doc.Components.Schemas.Map() {
		finishSchema(s, doc.Components.Schemas.TypeFromRef("#/components/schemas/"+name))
		plainWords(s)
	}
}

// plainWords says what a pattern means where every reader of the document finds it: huma has a keyword of its own for
// it, which strict ones refuse. Its sentences for those who do not match were made when the route was registered.
func plainWords(s *huma.Schema) {
	if s == nil {
		return
	}
	if s.PatternDescription != "" && s.Description == "" {
		s.Description = s.PatternDescription
	}
	s.PatternDescription = ""
	plainWords(s.Items)
	for _, p := range s.Properties {
		plainWords(p)
	}
	for _, list := range [][]*huma.Schema{s.OneOf, s.AnyOf, s.AllOf} {
		for _, one := range list {
			plainWords(one)
		}
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		plainWords(more)
	}
}

// methods are the operations of a path.
func methods(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}
	for method, op := range all {
		if op == nil {
			delete(all, method)
		}
	}
	return all
}

func finishOperation(op *huma.Operation) {
	op.Parameters = slices.DeleteFunc(op.Parameters, func(p *huma.Param) bool { // the media types of the body say it
		return p.In == "header" && (strings.EqualFold(p.Name, "Content-Type") || strings.EqualFold(p.Name, "Accept"))
	})
	if op.RequestBody != nil && len(op.RequestBody.Content) > 1 {
		delete(op.RequestBody.Content, "application/octet-stream")
	}
	var first *huma.Response
	for _, status := range []int{200, 201, 202} {
		if r := op.Responses[strconv.Itoa(status)]; first == nil && r != nil && r.Content != nil {
			first = r
		}
	}
	for status, r := range op.Responses {
		switch {
		case status >= "400" || status == "default":
			op.Responses[status] = &huma.Response{Ref: "#/components/responses/Problem"}
		case first != nil && r.Content == nil && status != strconv.Itoa(http.StatusNotModified) && status != strconv.Itoa(http.StatusNoContent):
			r.Content, r.Headers = first.Content, first.Headers
		}
	}
	if open(op.Path) {
		op.Security = []map[string][]string{} // none
	}
	if op.Path == "/readyz" { // says what is amiss
		op.Responses["503"] = &huma.Response{Description: http.StatusText(http.StatusServiceUnavailable), Content: first.Content}
	}
	op.Responses["default"] = &huma.Response{Ref: "#/components/responses/Problem"}
}

// finishSchema completes the schema of a struct.
func finishSchema(s *huma.Schema, t reflect.Type) {
	for _, p := range s.Properties {
		if p.Ref == "" && p.Type == "" && len(p.OneOf)+len(p.AnyOf)+len(p.AllOf) == 0 {
			if p.Extensions == nil {
				p.Extensions = map[string]any{}
			}
			p.Extensions["x-go-type"], p.Extensions["x-go-type-skip-optional-pointer"] = "json.RawMessage", true
		}
	}
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if p := s.Properties[name]; p != nil && p.Ref != "" && f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omitempty") {
			s.Properties[name] = &huma.Schema{OneOf: []*huma.Schema{{Ref: p.Ref, Description: p.Description}, {Type: "null"}}}
		}
	}
}
