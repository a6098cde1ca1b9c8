package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
)

// record is what a handler saw, in its order: every begin and every end of a call.
type record struct {
	mu     sync.Mutex
	events []event
	ends   int
}

// event is one of them. word is seq * 2, plus 1 for an end.
type event struct{ key, word int32 }

func (r *record) begin(key, seq int) {
	r.mu.Lock()
	r.events = append(r.events, event{int32(key), int32(seq) * 2})
	r.mu.Unlock()
}

// end returns how many calls have ended.
func (r *record) end(key, seq int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event{int32(key), int32(seq)*2 + 1})
	r.ends++
	return r.ends
}

// write stores it as pairs of 32-bit little-endian numbers, as the workers in JavaScript do.
func (r *record) write(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	body := make([]byte, 0, 8*len(r.events))
	for _, e := range r.events {
		body = binary.LittleEndian.AppendUint32(body, uint32(e.key))
		body = binary.LittleEndian.AppendUint32(body, uint32(e.word))
	}
	return os.WriteFile(path, body, 0o600)
}

func readRecord(path string) ([]event, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(body)%8 != 0 {
		return nil, fmt.Errorf("%s has %d bytes, not a whole number of events", path, len(body))
	}
	events := make([]event, len(body)/8)
	for i := range events {
		events[i] = event{int32(binary.LittleEndian.Uint32(body[8*i:])), int32(binary.LittleEndian.Uint32(body[8*i+4:]))}
	}
	return events, nil
}

// verdict counts what a FIFO queue per key must not do.
type verdict struct {
	ended    int // calls that ended, repeated ones not counted
	swapped  int // calls that began before one that is before them, or after one that is after them
	together int // calls that began while another of their key was running
	repeated int // calls that began again
	missing  int // calls that never ended; none if the run was cut short
	strange  int // events of rows that nobody loaded
}

func (v verdict) violations() int {
	return v.swapped + v.together + v.repeated + v.missing + v.strange
}

func (v verdict) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{v.swapped, "out of order"}, {v.together, "of one key at the same time"}, {v.repeated, "called again"}, {v.missing, "missing"}, {v.strange, "never loaded"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// check judges a record of keys x depth calls. whole says that the run was not cut short.
func check(events []event, keys, depth int, whole bool) verdict {
	var v verdict
	next := make([]int32, keys)    // the seq that may begin
	running := make([]int32, keys) // calls of the key in flight
	state := make([]uint8, keys*depth)
	const begun, ended = 1, 2
	for _, e := range events {
		seq, isEnd := e.word/2, e.word%2 == 1
		if e.key < 0 || int(e.key) >= keys || seq < 0 || int(seq) >= depth {
			v.strange++
			continue
		}
		at := int(e.key)*depth + int(seq)
		if isEnd {
			running[e.key]--
			if state[at]&ended == 0 {
				state[at] |= ended
				v.ended++
			}
			continue
		}
		if running[e.key] > 0 {
			v.together++
		}
		running[e.key]++
		switch {
		case state[at]&begun != 0:
			v.repeated++
		case seq != next[e.key]:
			v.swapped++
		}
		state[at] |= begun
		next[e.key] = max(next[e.key], seq+1)
	}
	if whole {
		v.missing = keys*depth - v.ended
	}
	return v
}
