// Package strict says which JSON we accept from outside, and why not the rest: what every reader reads in the same way,
// and what the database gives back as it was.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

// Check refuses what decoders let pass or change silently: a key that occurs twice in one object, invalid
// UTF-8, the character NUL (no text column can hold it) and half surrogates, numbers
// beyond the range of a double (their digits are kept, but hardly anybody reads such exponents), nesting
// deeper than depth, and anything behind the value. The error names where.
func Check(body []byte, depth int) error {
	if plain(body, depth) {
		return nil
	}
	return judge(body, depth)
}

// judge looks at every token, and finds the words for what is wrong.
func judge(body []byte, depth int) error {
	if at := badText(body); at >= 0 {
		return fmt.Errorf("byte %d is not UTF-8", at)
	}
	if bytes.HasPrefix(body, []byte("\ufeff")) {
		return errors.New("it begins with a byte order mark (U+FEFF): send UTF-8 without one")
	}
	p := &pass{d: json.NewDecoder(bytes.NewReader(body)), body: body, depth: depth}
	p.d.UseNumber()
	if err := p.value(0); err != nil {
		return err
	}
	if _, err := p.d.Token(); err != io.EOF {
		return fmt.Errorf("something follows the value at byte %d", p.d.InputOffset())
	}
	return nil
}

func badText(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

type pass struct {
	d     *json.Decoder
	body  []byte
	depth int
	path  []string
}

func (p *pass) where() string {
	if len(p.path) == 0 {
		return "at the root"
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	b.WriteString("at ")
	for _, part := range p.path {
		b.WriteString("/" + escape.Replace(fault.Clip(part)))
		if b.Len() > 200 {
			return b.String() + "/..."
		}
	}
	return b.String()
}

// value walks one value of the given level.
func (p *pass) value(level int) error {
	t, err := p.token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if level >= p.depth {
		return fmt.Errorf("nested deeper than %d %s", p.depth, p.where())
	}
	seen := map[string]bool{}
	for i := 0; p.d.More(); i++ {
		part := strconv.Itoa(i)
		if open == '{' {
			k, err := p.token()
			if err != nil {
				return err
			}
			part, ok = k.(string)
			if !ok {
				return fmt.Errorf("a key is no string %s", p.where())
			}
			if seen[part] {
				return fmt.Errorf("the key %q occurs twice %s", fault.Clip(part), p.where())
			}
			seen[part] = true
		}
		p.path = append(p.path, part)
		if err := p.value(level + 1); err != nil {
			return err
		}
		p.path = p.path[:len(p.path)-1]
	}
	_, err = p.token() // the closing one
	return err
}

// token reads the next token and refuses text that cannot be kept.
func (p *pass) token() (json.Token, error) {
	before := p.d.InputOffset()
	t, err := p.d.Token()
	if err != nil {
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("%s at byte %d, %s", syntax.Error(), syntax.Offset, p.where())
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("it ends too early, %s", p.where())
		}
		return nil, fmt.Errorf("it cannot be read at byte %d, %s", p.d.InputOffset(), p.where())
	}
	if n, ok := t.(json.Number); ok {
		if _, err := strconv.ParseFloat(string(n), 64); err != nil {
			return nil, fmt.Errorf("the number %s is beyond 1e308 %s", fault.Clip(string(n)), p.where())
		}
	}
	s, ok := t.(string)
	if !ok {
		return t, nil
	}
	if strings.IndexByte(s, 0) >= 0 {
		return nil, fmt.Errorf("the character \\u0000 %s", p.where())
	}
	// A half surrogate is decoded as U+FFFD; where that was not written, the text would change.
	if n := strings.Count(s, "\uFFFD"); n > 0 {
		raw := p.body[before:p.d.InputOffset()]
		if n != bytes.Count(raw, []byte("\uFFFD"))+bytes.Count(bytes.ToLower(raw), []byte(`\ufffd`)) {
			return nil, fmt.Errorf("half of a surrogate pair %s", p.where())
		}
	}
	return t, nil
}
