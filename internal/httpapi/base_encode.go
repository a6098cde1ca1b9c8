package httpapi

import (
	"bytes"
	"fmt"
	"io"

	"github.com/danielgtaylor/huma/v2"
)

// encoded is a body that is JSON already.
type encoded []byte

// unencodable is what encode panics with.
type unencodable struct{ error }

// encode writes a body before the status is sent, so that one that JSON cannot say (a year of 20000) is a 500 and
// never a 200 with half of an answer. It panics, and recover answers, since huma would write a text of its own in the
// place of a problem.
func encode(_ huma.Context, _ string, body any) (any, error) {
	b := &bytes.Buffer{}
	if err := huma.DefaultJSONFormat.Marshal(b, body); err != nil {
		panic(unencodable{fmt.Errorf("the answer cannot be written as JSON: %w", err)})
	}
	return encoded(b.Bytes()), nil
}

// jsonFormat writes what encode has made.
var jsonFormat = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		if b, ok := v.(encoded); ok {
			_, err := w.Write(b)
			return err
		}
		return huma.DefaultJSONFormat.Marshal(w, v)
	},
	Unmarshal: huma.DefaultJSONFormat.Unmarshal,
}
