package remote

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxDepth    = 64      // levels of nesting that we store, as for bodies of clients
	maxMessage  = 1 << 10 // bytes of a sentence for people
	maxCode     = 64      // bytes of an error code
	maxExponent = 1000    // of a number; jsonb takes 131,072 digits, most other programs do not
	maxNumber   = 1000    // characters of a number
)

// storable returns raw as jsonb takes it. PostgreSQL refuses NUL, bad UTF-8, half surrogates and numbers
// beyond its range; these become U+FFFD or, the number, a string. false: it is nested too deep.
// raw is valid JSON.
func storable(raw json.RawMessage) (json.RawMessage, bool) {
	plain, depth := scan(raw)
	if depth > maxDepth {
		return nil, false
	}
	if plain {
		return raw, true
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil, false
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(mend(v)) != nil {
		return nil, false
	}
	return bytes.TrimSpace(out.Bytes()), true
}

// scan says in one pass whether raw is surely storable as it is, and how deep it is nested.
func scan(raw []byte) (plain bool, deepest int) {
	plain = utf8.Valid(raw)
	depth, number, inString := 0, 0, false
	for i := 0; i < len(raw); i++ {
		ch := raw[i]
		if inString {
			switch ch {
			case '"':
				inString = false
			case '\\':
				i++ // valid JSON: something follows
				if i < len(raw) && raw[i] == 'u' {
					plain = false // maybe NUL or half a surrogate
				}
			}
			continue
		}
		switch ch {
		case '"':
			inString = true
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
		if ch >= '0' && ch <= '9' || ch == '.' {
			number++
		} else if (ch == 'e' || ch == 'E') && number > 0 {
			plain = false
		} else {
			number = 0
		}
		if number > maxNumber {
			plain = false
		}
	}
	return plain, deepest
}

// mend replaces what PostgreSQL would refuse. The decoder has already put U+FFFD for half surrogates
// and bad UTF-8.
func mend(v any) any {
	switch v := v.(type) {
	case string:
		return noNUL(v)
	case json.Number:
		if len(v) > maxNumber {
			return string(v)
		}
		if i := strings.IndexAny(string(v), "eE"); i >= 0 {
			if n, err := strconv.Atoi(string(v[i+1:])); err != nil || n > maxExponent || n < -maxExponent {
				return string(v)
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = mend(v[i])
		}
		return v
	case map[string]any:
		for k, e := range v {
			if clean := noNUL(k); clean != k {
				delete(v, k)
				k = clean
			}
			v[k] = mend(e)
		}
		return v
	}
	return v
}

func noNUL(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }

// clipMessage makes a sentence from outside fit for a row and a terminal: valid UTF-8, no control
// characters, at most 1 KiB.
func clipMessage(s string) string { return clip(s, maxMessage) }

// clipCode does the same for an error code.
func clipCode(s string) string { return clip(s, maxCode) }

func clip(s string, n int) string {
	if len(s) > 2*n {
		s = s[:2*n] // enough to look at
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// quote shows a value from outside within a sentence.
func quote(s string) string { return strconv.Quote(clip(s, maxCode)) }
