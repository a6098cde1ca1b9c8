// Package examples has requests with what is shown of their answers: the contract shows their bodies, and tests play
// each file in its order.
package examples

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
)

//go:embed *.json
var files embed.FS

// Example is a request and what is shown of its answer.
type Example struct {
	Does, Method, Path string
	Headers            map[string]string
	Body               json.RawMessage
	Status             int
	Answer             any
}

// All returns the examples, a list per file.
func All() ([][]Example, error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, err
	}
	var all [][]Example
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var list []Example
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, list)
	}
	return all, nil
}
