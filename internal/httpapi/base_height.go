package httpapi

import (
	"bytes"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
)

// height is a block height that a client writes: digits in a string or, below 2^53, a number.
type height int64

// UnmarshalJSON reads either.
func (h *height) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(string(bytes.Trim(b, `"`)), 10, 63)
	if err != nil {
		return fault.At("/height", "height %q: want digits, such as \"4711\"", fault.Clip(string(b)))
	}
	*h = height(n)
	return nil
}

// Schema leaves the form to UnmarshalJSON: generated clients have no type for both.
func (height) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "Digits, or a number.", Examples: []any{"4711"}}
}

// digits shows a height as a string, since it can pass 2^53.
func digits(n *int64) *string {
	if n == nil {
		return nil
	}
	text := strconv.FormatInt(*n, 10)
	return &text
}
