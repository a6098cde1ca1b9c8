package sequencer_test

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

func TestWhatAnAnswerSaysOfTheAddress(t *testing.T) {
	const blocked, ambiguous, retry = outbox.ClassBlocked, outbox.ClassAmbiguous, outbox.ClassRetry
	told := func(class outbox.Class, scope outbox.Scope) outbox.Answer {
		return outbox.Answer{Class: class, Scope: scope, Told: true}
	}
	for _, c := range []struct {
		name  string
		a     outbox.Answer
		sends bool
		want  sequencer.Verdict
	}{
		{"done", outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`1`)}}, false, "reached"},
		{"accepted", outbox.Answer{Result: outbox.Result{Hash: "0x"}}, false, "reached"},
		{"rejected", told(outbox.ClassRejected, ""), false, "reached"},
		{"the worker's own retry", told(retry, ""), false, "reached"},
		{"the worker does not know", told(ambiguous, ""), false, "reached"},
		{"it blocks the queue", told(blocked, outbox.ScopeQueue), true, "reached"},
		{"it blocks the sender", told(blocked, outbox.ScopeSender), true, "away"},
		{"it blocks a sender that is not there", told(blocked, outbox.ScopeSender), false, "reached"},
		{"it blocks itself", told(blocked, outbox.ScopeWorker), false, "away"},
		{"no connection", outbox.Answer{Class: blocked, Scope: outbox.ScopeWorker, Unsent: true}, false, "away"},
		{"another's 404", outbox.Answer{Class: blocked, Scope: outbox.ScopeQueue}, false, "nothing"},
		{"another's 500", outbox.Answer{Class: ambiguous, Code: "http_500"}, false, "nothing"},
		{"no answer", outbox.Answer{Class: ambiguous, Code: "timeout"}, false, "nothing"},
		{"an answer that says nothing", outbox.Answer{}, false, "nothing"},
		{"another's 400, which speaks of this request", outbox.Answer{Class: retry, Code: "http_400"}, false, ""},
		{"a fence is old", outbox.Answer{Class: ambiguous, Code: "http_409"}, false, ""},
	} {
		if got := sequencer.Judge(c.a, c.sends); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// heard lets a breaker hear answers by their queues, and returns what became of the gate each time: a letter each.
// Positive numbers came to nothing, 0 got through, negative ones had no connection.
func heard(limit int, queues ...int64) (moves string) {
	var b sequencer.Breaker
	for _, q := range queues {
		h := sequencer.Heard{Verdict: sequencer.VerdictNothing, Queue: q}
		switch {
		case q == 0:
			h.Verdict = sequencer.VerdictReached
		case q < 0:
			h.Verdict = sequencer.VerdictAway
		}
		move, _ := b.Hear(h, limit)
		moves += map[sequencer.Move]string{"": "-", "close": "c", "open": "o"}[move]
	}
	return moves
}

func TestWhenAGateCloses(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  int
		queues []int64
		want   string
	}{
		{"five different queues", 5, []int64{1, 2, 3, 4, 5}, "----c"},
		{"one queue, however often", 5, []int64{1, 1, 1, 1, 1, 1, 1}, "-------"},
		{"four of five", 5, []int64{1, 2, 3, 4, 4, 3}, "------"},
		{"one got through between", 5, []int64{1, 2, 3, 4, 0, 5, 6}, "----o--"},
		{"it counts anew after it closed", 2, []int64{1, 2, 3, 4}, "-c-c"},
		{"no connection, at once", 5, []int64{-1}, "c"},
		{"off", 0, []int64{1, 2, 3, 4, 5, 6}, "oooooo"},
		{"off, no connection", 0, []int64{-1}, "c"},
	} {
		if got := heard(c.limit, c.queues...); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAHeadThatCameToNothingClosesNoGateUntilItGotThrough(t *testing.T) {
	var b sequencer.Breaker
	for q := range int64(5) {
		if move, _ := b.Hear(sequencer.Heard{Verdict: sequencer.VerdictNothing, Queue: q, Again: true}, 5); move != "" {
			t.Errorf("queue %d: %s", q, move)
		}
	}
	unsent := sequencer.Heard{Verdict: sequencer.VerdictAway, Queue: 1, Again: true, Unsent: true}
	if move, _ := b.Hear(unsent, 5); move != sequencer.MoveClose {
		t.Errorf("a head without a connection, once more: %q", move)
	}
	if move, _ := b.Hear(sequencer.Heard{Verdict: sequencer.VerdictAway, Queue: 1, Again: true}, 5); move != "" {
		t.Errorf("no connection: %s", move)
	}
	for _, v := range []sequencer.Verdict{sequencer.VerdictNothing, sequencer.VerdictAway} {
		probe := sequencer.Heard{Verdict: v, Queue: 1, Again: true, Probe: true}
		if move, _ := b.Hear(probe, 5); move != sequencer.MoveClose {
			t.Errorf("a probe, %s: %q, want close: it keeps closed what is", v, move)
		}
	}
}

// Five rejections by one code are told once, whatever else failed, and again after another answer.
func TestRejectionsByOneCodeAreToldOnce(t *testing.T) {
	var b sequencer.Breaker
	said := ""
	for _, h := range []struct {
		queue int64
		code  string
	}{
		{1, "NO"}, {2, "NO"}, {2, "NO"}, {3, "NO"}, {4, "NO"}, {4, "NO"}, {5, ""},
		{1, "NO"}, {2, "NO"}, {3, "NO"}, {4, "NEVER"}, {5, "NO"},
	} {
		move, many := b.Hear(sequencer.Heard{Verdict: sequencer.VerdictReached, Queue: h.queue, Code: h.code}, 3)
		if said += map[bool]string{true: "!", false: "."}[many]; move != sequencer.MoveOpen {
			t.Errorf("a rejection has the gate %s", move)
		}
	}
	if want := "...!.....!.."; said != want {
		t.Errorf("%s, want %s", said, want)
	}
}
