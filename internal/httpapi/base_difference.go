package httpapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
)

// differenceView is one setting that is, or would be, another one.
type differenceView struct {
	Field   string `json:"field" doc:"a JSON pointer into the settings"`
	Was     any    `json:"was" doc:"null: it was not set; (hidden) for a secret"`
	Becomes any    `json:"becomes" doc:"null: it is not set any more; (hidden) for a secret"`
}

// hidden stands for a secret.
const hidden = "(hidden)"

// differences lists in which settings two things differ, by their names. Objects are compared member by member,
// lists as wholes, and all values as the database does.
func differences(was, becomes any) ([]differenceView, error) {
	var both [2]any
	for i, v := range []any{was, becomes} {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		both[i] = outbox.Parsed(b)
	}
	return differing(nil, "", both[0], both[1]), nil
}

var escapedPointer = strings.NewReplacer("~", "~0", "/", "~1")

func differing(list []differenceView, pointer string, was, becomes any) []differenceView {
	x, ok := was.(map[string]any)
	y, also := becomes.(map[string]any)
	if !ok || !also {
		if !equalJSON(was, becomes) {
			list = append(list, differenceView{pointer, was, becomes})
		}
		return list
	}
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = differing(list, pointer+"/"+escapedPointer.Replace(k), x[k], y[k])
	}
	return list
}
