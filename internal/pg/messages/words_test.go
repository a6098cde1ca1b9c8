package messages_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// A question about many messages reads as much of their results as one answer has, and all that are not here; the next
// questions are told the others.
func TestAnAnswerReadsNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many, each = 40, 60_000
	asked := []messages.Asked{{ID: uuid.Max}}
	for range many {
		a := w.brought()
		w.Same([]string{w.arrives(w.S, a)}, "ok")
		m := w.one()
		_, err := w.S.Messages.Answered(w.Ctx, w.shop, m.ID, m.Fence, messages.Reply{Format: "text",
			Body: strings.Repeat("x", each)})
		w.Must(err)
		asked = append(asked, messages.Asked{ID: a.ID})
	}
	n, unknown, err := w.S.Messages.Loaded(w.Ctx, w.shop.Context, "near", asked)
	if err != nil || n < 1<<20 || n > 1<<20+2*each || unknown != 1 {
		t.Errorf("%d bytes of results are read, and %d messages are not here: %v", n, unknown, err)
	}
	told, questions := map[uuid.UUID]bool{}, 0
	for ; len(told) < many && questions < many; questions++ {
		words, _, err := w.S.Messages.Words(w.Ctx, w.shop.Context, "near", asked[1:], 0)
		w.Must(err)
		for _, word := range words {
			told[word.ID] = true
		}
		left := asked[:1]
		for _, a := range asked[1:] {
			if !told[a.ID] {
				left = append(left, a)
			}
		}
		asked = left
	}
	if len(told) != many || questions > 4 {
		t.Errorf("%d messages are told in %d answers, want %d in 3", len(told), questions, many)
	}
}

// tried is a message with two jobs, each with two tries that have written so many lines, and have so many bytes noted.
func (w *world) tried(lines, logged int) messages.Arrival {
	w.T.Helper()
	a := w.brought(func(s *message.Signed) {
		s.Type, s.Body = message.Job, ""
		s.Jobs = json.RawMessage(`[{"script": "1", "script_type": "python"},
			{"script": "2", "script_type": "python"}]`)
	})
	w.Same([]string{w.arrives(w.S, a)}, "ok")
	w.Exec(`INSERT INTO postern.job_try (try_id, context_id, job_id, queue_id, seq, attempt, token, lane, was, state,
			offered_at, ended_at, logged)
		SELECT gen_random_uuid(), j.context_id, j.job_id, 1, 1, n, j.job_id || ' ' || n, '', 'Held', 'Failed', $1, $1,
			$2
		FROM postern.job j
		CROSS JOIN generate_series(1, 2) n`, w.Now, logged)
	w.Exec(`INSERT INTO postern.try_log (try_id, fence, n, at, stream, text)
		SELECT t.try_id, 1, n, $1, 'stdout', t.attempt || '.' || n
		FROM postern.job_try t
		CROSS JOIN generate_series(1, $2) n`, w.Now, lines)
	return a
}

// However much the jobs of a message have written, the peer is told of it, and of the others that it asks about.
func TestMuchOutputIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.tried(1, math.MaxInt32)
	asked := []messages.Asked{{ID: a.ID}}
	words, _, err := w.S.Messages.Words(w.Ctx, w.shop.Context, "near", asked, 0)
	if err != nil || len(words) != 1 || len(words[0].Lines) != 4 || words[0].Steps <= 0 {
		t.Fatalf("%+v %v", words, err)
	}
	asked[0].Steps = words[0].Steps
	if words, _, err = w.S.Messages.Words(w.Ctx, w.shop.Context, "near", asked, 0); err != nil || len(words) != 0 {
		t.Errorf("what is known is told again: %+v %v", words, err)
	}
	if _, _, err := w.S.Messages.WordsOfStopped(w.Ctx, w.shop.Context, "near", []uuid.UUID{a.ID}, 0); err != nil {
		t.Error(err)
	}
}

// The output of jobs is told in order, each line once, over as many answers as it takes.
func TestOutputIsToldInOrderOverManyAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lines = 700
	a := w.tried(lines, 1)
	var known []int
	texts := map[int][]string{}
	for range 9 {
		asked := []messages.Asked{{ID: a.ID, Lines: known}}
		words, _, err := w.S.Messages.Words(w.Ctx, w.shop.Context, "near", asked, 0)
		w.Must(err)
		for _, p := range words[0].Lines {
			for len(known) <= p.Job {
				known = append(known, 0)
			}
			if known[p.Job]++; p.N != known[p.Job] {
				t.Fatalf("line %d of job %d is told as %d", known[p.Job], p.Job, p.N)
			}
			texts[p.Job] = append(texts[p.Job], p.Text)
		}
	}
	var want []string
	for try := 1; try <= 2; try++ {
		for n := 1; n <= lines; n++ {
			want = append(want, fmt.Sprint(try, ".", n))
		}
	}
	if !slices.Equal(texts[0], want) || !slices.Equal(texts[1], want) {
		t.Errorf("%d and %d lines are told, want %d each, in order", len(texts[0]), len(texts[1]), len(want))
	}
}

// However many words come behind the end of a message, each another one, so many are kept and no more.
func TestWhatComesTooLateIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	id := w.toFar("hello")
	for steps := range 110 {
		w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: id, Steps: steps + 3, Status: "error", Code: "rejected"}))
	}
	if _, late, err := w.S.Messages.History(w.Ctx, w.ID, id); err != nil || len(late) != 100 {
		t.Errorf("%d are kept: %v", len(late), err)
	}
}
