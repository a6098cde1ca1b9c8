package leader

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
)

// answer is a page as it came.
type answer struct {
	rest   json.RawMessage // the document, with an empty array where its events stood
	events []element
	listed bool // there was an array of events
	size   int  // bytes that are kept
}

// element is one event of it.
type element struct {
	raw  json.RawMessage            // as it came; nil if it has more than MaxEvent bytes
	size int64                      // bytes
	sum  []byte                     // SHA-256 of one that has more
	told map[string]json.RawMessage // and what stands at the pointers that were asked for
}

// at returns what stands at a pointer, nil for nothing. Of an event that is too large, only what was asked for is
// known.
func (e element) at(pointer string) json.RawMessage {
	if e.sum != nil {
		return e.told[pointer]
	}
	return at(e.raw, pointer)
}

// at returns what stands at a pointer of the page. list is the pointer to its events.
func (a answer) at(pointer, list string) json.RawMessage {
	below, ok := strings.CutPrefix(pointer, list+"/")
	if !ok || !a.listed {
		return at(a.rest, pointer)
	}
	index, inside, _ := strings.Cut(below, "/")
	i, err := strconv.Atoi(index)
	switch {
	case err != nil || i < 0 || i >= len(a.events):
		return nil
	case len(inside) < len(below)-len(index):
		inside = "/" + inside
	}
	return a.events[i].at(inside)
}

// hash names an event by what it is.
func (e element) hash() string {
	sum := e.sum
	if sum == nil {
		of := sha256.Sum256(e.raw)
		sum = of[:]
	}
	return fmt.Sprintf("sha256:%x", sum)
}

// unfit says why the database cannot hold an event, or why readers would take it differently; "" if it fits.
func (e element) unfit() string {
	if e.size > MaxEvent {
		return oversize(e.size)
	}
	if err := strict.Check(e.raw, maxNesting); err != nil {
		return "it is not JSON that we accept: " + err.Error()
	}
	return ""
}

var (
	errNotJSON = errors.New("the answer is no JSON")
	errLarge   = errors.New("the answer is too large")
)

const (
	maxTold = 64 << 10 // bytes of a value at a pointer, within an event that is too large
	maxKey  = 1 << 10  // bytes of a key that a pointer may name
)

// takeApart reads a page whose events stand in the array at a pointer. Of an event with more than MaxEvent bytes only
// what stands at pointers is kept: one of any size takes time and no memory. All that is kept may have most bytes, or
// it is errLarge. An event ends where its brackets do, whatever stands between them, so that one that is no JSON does
// not take its page with it; whether it is any is for others to say.
func takeApart(in io.Reader, list string, pointers []string, most int) (answer, error) {
	s := &scanner{in: in, buf: make([]byte, 32<<10), most: most}
	rest := &sink{most: most}
	s.push(rest)
	s.walk([]spot{{steps: outbox.Pointer(list).Steps(), pointers: pointers}})
	s.space()
	if s.err == nil && s.more() { // something follows the document
		s.err = errNotJSON
	}
	s.pop()
	switch {
	case s.err != nil && s.err != io.EOF:
		return answer{}, s.err
	case rest.sum != nil:
		return answer{}, errLarge
	case !json.Valid(rest.Bytes()):
		return answer{}, errNotJSON
	}
	s.answer.rest, s.answer.size = rest.Bytes(), s.answer.size+rest.Len()
	return s.answer, nil
}

// spot is a place within a value.
type spot struct {
	steps    []string // the keys and indices that lead there
	name     string   // the value there is kept under this name
	pointers []string // unless this is the array of events: then those of each
}

// scanner reads JSON from a stream and keeps nothing of it but what its sinks take.
type scanner struct {
	in             io.Reader
	buf            []byte
	from, pos, end int // buf[from:pos] was read and has not gone to the sinks, buf[pos:end] is to be read
	sinks          []*sink
	most           int
	told           map[string]json.RawMessage // of the event that is being read
	answer         answer
	err            error
}

// sink keeps what it is given, up to most bytes; of more, its hash.
type sink struct {
	bytes.Buffer
	most int
	size int64
	sum  hash.Hash
}

func (k *sink) take(b []byte) {
	k.size += int64(len(b))
	switch {
	case k.sum != nil:
		k.sum.Write(b)
	case k.Len()+len(b) <= k.most:
		k.Write(b)
	default:
		k.sum = sha256.New()
		k.sum.Write(k.Bytes())
		k.sum.Write(b)
		k.Buffer = bytes.Buffer{}
	}
}

func (s *scanner) flush() {
	for _, k := range s.sinks {
		k.take(s.buf[s.from:s.pos])
	}
	s.from = s.pos
}

func (s *scanner) push(k *sink) {
	s.flush()
	s.sinks = append(s.sinks, k)
}

func (s *scanner) pop() {
	s.flush()
	s.sinks = s.sinks[:len(s.sinks)-1]
}

// more says whether there is another byte, which is then buf[pos].
func (s *scanner) more() bool {
	for s.pos == s.end && s.err == nil {
		s.flush()
		s.from, s.pos = 0, 0
		s.end, s.err = s.in.Read(s.buf)
		if s.end > 0 && s.err == io.EOF {
			s.err = nil // it comes again
		}
	}
	return s.pos < s.end && (s.err == nil || s.err == io.EOF)
}

// next is the byte that comes next, 0 at the end.
func (s *scanner) next() byte {
	if !s.more() {
		return 0
	}
	return s.buf[s.pos]
}

// passes reads the byte c, if it comes next.
func (s *scanner) passes(c byte) bool {
	if !s.more() || s.buf[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) space() {
	for s.more() && isSpace(s.buf[s.pos]) {
		s.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// walk reads one value, and keeps what stands at spots.
func (s *scanner) walk(spots []spot) {
	s.space()
	var below []spot
	var here []string
	for _, p := range spots {
		switch {
		case len(p.steps) > 0:
			below = append(below, p)
		case p.name != "":
			here = append(here, p.name)
		case s.next() == '[':
			s.events(p.pointers)
			return
		default:
			s.answer.listed = false
		}
	}
	k := &sink{most: maxTold}
	if here != nil {
		s.push(k)
	}
	switch c := s.next(); {
	case below != nil && c == '{':
		s.members(below)
	case below != nil && c == '[':
		s.elements(below)
	default:
		s.skip()
	}
	if here == nil {
		return
	}
	s.pop()
	for _, name := range here {
		if k.sum == nil {
			s.told[name] = k.Bytes()
		}
	}
}

// members reads an object.
func (s *scanner) members(spots []spot) {
	s.pos++
	for first := true; ; first = false {
		s.space()
		if s.passes('}') {
			return
		}
		if !first {
			if !s.passes(',') {
				break
			}
			s.space()
		}
		if s.next() != '"' {
			break
		}
		key := s.key()
		if s.space(); !s.passes(':') {
			break
		}
		s.walk(lead(spots, func(step string) bool { return key != nil && step == *key }))
	}
	s.close(1)
}

// elements reads an array.
func (s *scanner) elements(spots []spot) {
	s.pos++
	for i := 0; ; i++ {
		s.space()
		if s.passes(']') {
			return
		}
		if i > 0 && !s.passes(',') {
			break
		}
		s.walk(lead(spots, func(step string) bool { n, err := strconv.Atoi(step); return err == nil && n == i }))
	}
	s.close(1)
}

// lead returns the spots that are behind this step.
func lead(spots []spot, here func(step string) bool) (list []spot) {
	for _, p := range spots {
		if here(p.steps[0]) {
			p.steps = p.steps[1:]
			list = append(list, p)
		}
	}
	return list
}

// events reads the array of events. It goes to no sink, but for its brackets.
func (s *scanner) events(pointers []string) {
	s.pos++
	s.flush()
	outer := s.sinks
	s.sinks = nil
	spots := make([]spot, len(pointers))
	for i, p := range pointers {
		spots[i] = spot{steps: outbox.Pointer(p).Steps(), name: p}
	}
	s.answer = answer{listed: true}
	for first := true; s.err == nil; first = false {
		s.space()
		if s.next() == ']' {
			s.flush()
			s.sinks = outer
			s.pos++
			return
		}
		if !first {
			if !s.passes(',') {
				break
			}
			s.space()
		}
		k := &sink{most: MaxEvent}
		s.told = map[string]json.RawMessage{}
		s.push(k)
		s.walk(spots)
		s.pop()
		e := element{size: k.size}
		if k.sum == nil {
			e.raw = bytes.Clone(k.Bytes())
			s.answer.size += len(e.raw)
		} else {
			e.sum, e.told = k.sum.Sum(nil), s.told
			for _, v := range s.told {
				s.answer.size += len(v)
			}
		}
		if k.size == 0 {
			break
		}
		if s.answer.size > s.most {
			s.fail(errLarge)
		}
		s.answer.events = append(s.answer.events, e)
	}
	s.sinks = outer
	s.fail(errNotJSON)
}

func (s *scanner) fail(err error) {
	if s.err == nil || s.err == io.EOF {
		s.err = err
	}
}

// key reads a string, nil for one that no pointer can name.
func (s *scanner) key() *string {
	k := &sink{most: maxKey}
	s.push(k)
	s.text()
	s.pop()
	var key string
	if json.Unmarshal(k.Bytes(), &key) != nil {
		return nil
	}
	return &key
}

// skip reads one value.
func (s *scanner) skip() {
	switch s.next() {
	case '"':
		s.text()
	case '{', '[':
		s.pos++
		s.close(1)
	default:
		for s.more() && !isSpace(s.buf[s.pos]) && strings.IndexByte(`,:]}"`, s.buf[s.pos]) < 0 {
			s.pos++
		}
	}
}

// close reads on until as many brackets are closed.
func (s *scanner) close(depth int) {
	for depth > 0 && s.more() {
		switch s.buf[s.pos] {
		case '"':
			s.text()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.pos++
	}
}

// text reads a string.
func (s *scanner) text() {
	s.pos++
	for escaped := false; s.more(); {
		for s.pos < s.end {
			c := s.buf[s.pos]
			s.pos++
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				return
			}
		}
	}
}
