package manifest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// refusal is one of the member refused of the problem of an apply.
type refusal struct {
	Index                       *int // of the document; nil: it is about something that no document names
	Kind, Context, Name, Detail string
	Errors                      []fault.Field
}

// Refusals says in lines what of the documents an apply has refused, and where that stands. raw is the member
// refused of its problem; of anything else there are none.
func Refusals(raw []byte, documents []*Document) (lines []string) {
	var list []refusal
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	for _, r := range list {
		lines = append(lines, r.lines(documents)...)
	}
	return lines
}

func (r refusal) lines(documents []*Document) (list []string) {
	what := r.Kind + " " + r.Name
	if r.Context != "" {
		what += " of context " + r.Context
	}
	if r.Index == nil || *r.Index >= len(documents) {
		return []string{what + ", which no document names any more: " + r.Detail}
	}
	d := documents[*r.Index]
	if len(r.Errors) == 0 {
		return []string{d.Where("") + ": " + what + ": " + r.Detail}
	}
	for _, e := range r.Errors {
		field := strings.TrimPrefix(strings.TrimPrefix(e.Pointer, "/settings"), "/")
		said := e.Detail
		if field != "" && !strings.HasPrefix(said, field) {
			said = field + ": " + said
		}
		list = append(list, fmt.Sprintf("%s: %s: %s", d.Where(e.Pointer), what, said))
	}
	return list
}
