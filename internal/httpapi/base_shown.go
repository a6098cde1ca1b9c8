package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/api/examples"
)

// show puts the bodies of api/examples that are accepted beside the operations that take them.
func show(doc *huma.OpenAPI) error {
	all, err := examples.All()
	if err != nil {
		return err
	}
	for _, list := range all {
		for _, e := range list {
			if len(e.Body) == 0 || e.Status >= 400 {
				continue
			}
			path, _, _ := strings.Cut(e.Path, "?")
			for template, item := range doc.Paths {
				op := methods(item)[e.Method]
				if op == nil || op.RequestBody == nil || !stands(path, template) {
					continue
				}
				media, name := op.RequestBody.Content["application/json"],
					strings.Join(strings.FieldsFunc(e.Does, func(r rune) bool { return r < 'a' || r > 'z' }), "-")
				if media == nil {
					return fmt.Errorf("%q has a body, and %s takes no JSON", e.Does, op.OperationID)
				}
				if media.Examples[name] != nil {
					return fmt.Errorf("%q is the second example of %s with that name", e.Does, op.OperationID)
				}
				var body any
				if err := json.Unmarshal(e.Body, &body); err != nil {
					return err
				}
				if media.Examples == nil {
					media.Examples = map[string]*huma.Example{}
				}
				media.Examples[name] = &huma.Example{Summary: e.Does, Value: body}
			}
		}
	}
	return nil
}

// stands says whether a path is one of a template, such as /queues/{name}.
func stands(path, template string) bool {
	have, want := strings.Split(path, "/"), strings.Split(template, "/")
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if want[i] != have[i] && !(strings.HasPrefix(want[i], "{") && strings.HasSuffix(want[i], "}")) {
			return false
		}
	}
	return true
}
