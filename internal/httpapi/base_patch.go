package httpapi

import (
	"encoding/json"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// merged applies a JSON merge patch (RFC 7396) to the settings that there are, and returns what a PUT
// would send.
func merged(settings any, patch []byte) ([]byte, error) {
	b, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	target, change := outbox.Parsed(b), outbox.Parsed(patch)
	if _, ok := change.(map[string]any); !ok {
		return nil, fault.At("", "want a JSON object: a merge patch")
	}
	return json.Marshal(merge(target, change))
}

func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for k, v := range changes {
		if v == nil {
			delete(object, k)
		} else {
			object[k] = merge(object[k], v)
		}
	}
	return object
}

// patchBody is the body of every PATCH: it is validated after it was applied.
type patchBody map[string]any
