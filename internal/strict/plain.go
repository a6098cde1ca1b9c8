package strict

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// keysAtMost is how many keys of an object plain compares with one another.
const keysAtMost = 32

// plain says at a glance that Check has nothing against a body: true is certain, false says nothing. It wants valid
// JSON without escapes of characters, and numbers that are too short to be out of range, as nearly all bodies are. Then
// it has to look only at depth and at keys that occur twice.
func plain(body []byte, depth int) bool {
	if bytes.Contains(body, []byte(`\`)) || !json.Valid(body) || !utf8.Valid(body) {
		return false
	}
	var keys [][]byte // of the objects that are open, one behind the other
	var open []int    // where those of each begin; -1 for an array
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '{', '[':
			if len(open) >= depth {
				return false
			}
			if c == '{' {
				open = append(open, len(keys))
			} else {
				open = append(open, -1)
			}
		case '}', ']':
			if first := open[len(open)-1]; first >= 0 {
				keys = keys[:first]
			}
			open = open[:len(open)-1]
		case '"':
			end := i + 1 + bytes.IndexByte(body[i+1:], '"')
			text := body[i+1 : end]
			i = end
			for end++; end < len(body) && (body[end] == ' ' || body[end] == '\t' ||
				body[end] == '\r' || body[end] == '\n'); {
				end++
			}
			if end == len(body) || body[end] != ':' {
				continue
			}
			first := open[len(open)-1]
			if len(keys)-first >= keysAtMost {
				return false
			}
			for _, k := range keys[first:] {
				if bytes.Equal(k, text) {
					return false
				}
			}
			keys = append(keys, text)
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			start := i
			for i+1 < len(body) && (body[i+1] >= '0' && body[i+1] <= '9' || body[i+1] == '.') {
				i++
			}
			if i-start > 200 || i+1 < len(body) && (body[i+1] == 'e' || body[i+1] == 'E') {
				return false
			}
		}
	}
	return true
}
