package domains_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// image is that of a domain as a process would load it, as text.
func (w *world) image(s *stores.Store, kept bool) string {
	w.T.Helper()
	d, permits, err := s.Domains.ImageNow(w.Ctx, w.id(), kept)
	w.Must(err)
	text, err := json.Marshal([]any{d, permits})
	w.Must(err)
	return strings.ReplaceAll(string(text), "[]", "null")
}

// Two processes take the steps of a domain in turns. Each reads what the other has changed, and has the image that a
// process has that reads all.
func TestAProcessReadsWhatTheStepsOfAnotherChanged(t *testing.T) {
	w := newWorld(t)
	const intents = 80
	two, third := []*stores.Store{w.S, w.Another(2)}, w.Another(2)
	var ids []string
	for n := range intents {
		ids = append(ids, w.post(fmt.Sprint("n", n)).ID)
	}
	known, whole := 0, 0
	for n := 0; w.open() > 0; n++ {
		if n > 40*intents {
			t.Fatal("it does not end")
		}
		switch n % 7 {
		case 3:
			_, _ = two[n%2].Domains.Cancel(w.Ctx, w.By, "tok", ids[n%intents]) // refused where it has gone out
		case 5:
			w.send()
		}
		w.Must(w.turn(w.Ctx, two[n%2], w.node))
		w.Later(20 * time.Millisecond)
		other := two[(n+1)%2]
		is, changed, err := other.Domains.KeepsImage(w.Ctx, w.id())
		w.Must(err)
		if !is {
			whole++
			continue
		}
		if known++; len(changed) > 64 {
			t.Errorf("%d intents are read again behind step %d", len(changed), n)
		}
		if got, want := w.image(other, true), w.image(third, false); got != want {
			at := 0
			for ; at < min(len(got), len(want)) && got[at] == want[at]; at++ {
			}
			from, end := max(0, at-300), at+200
			t.Fatalf("behind step %d, which changed %v, it has\n%s\nand one that reads all\n%s", n, changed,
				got[from:min(end, len(got))], want[from:min(end, len(want))])
		}
	}
	if known < 10*whole {
		t.Errorf("%d images were read in part, and %d whole", known, whole)
	}
	if slices.ContainsFunc(w.receipts(), func(r string) bool { return r != "success " && r != "failure cancelled" }) {
		t.Error(w.receipts())
	}
}

// Each field that a permit may change after it was given is in its row: another process reads what the one that took
// the step keeps.
func TestEachFieldOfAPermitIsWritten(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	w.Exec(`INSERT INTO postern.coord_permit (domain_id, intent_id, n, generation, node, install, beat, given_at)
		SELECT domain_id, intent_id, 1, 1, 'self', 1, 1, now() FROM postern.coord_intent`)
	w.image(w.S, false)
	third, stays := w.Another(2), []string{"ID", "Node", "GivenAt"}
	for n := range reflect.TypeFor[coord.Permit]().NumField() {
		name := reflect.TypeFor[coord.Permit]().Field(n).Name
		if slices.Contains(stays, name) {
			continue
		}
		w.Must(w.S.Domains.StepBy(w.Ctx, w.id(), func(d *coord.Domain) {
			d.Permits[0].ClosedAt = w.Now // one that has ended is closed
			switch v := reflect.ValueOf(d.Permits[0]).Elem().Field(n); v.Interface().(type) {
			case time.Time:
				v.Set(reflect.ValueOf(w.Now.Add(time.Second)))
			case string:
				v.SetString("other")
			case int64:
				v.SetInt(7)
			case bool:
				v.SetBool(true)
			default:
				t.Fatalf("%s is of a kind that this test does not change", name)
			}
		}))
		if got, want := w.image(w.S, true), w.image(third, false); got != want {
			t.Fatalf("%s was changed: it has\n%s\nand one that reads all\n%s", name, got, want)
		}
	}
}

// An image of a history that is lost is worth nothing, whatever number its step has.
func TestAnImageOfALostHistoryIsReadAgain(t *testing.T) {
	w := newWorld(t)
	other := w.Another(2)
	w.post("a")
	w.Must(w.turn(w.Ctx, w.S, w.node))
	knows := func(s *stores.Store, want bool, when string) {
		t.Helper()
		if known, _, err := s.Domains.KeepsImage(w.Ctx, w.id()); err != nil || known != want {
			t.Errorf("%s: its image is known: %t, want %t (%v)", when, known, want, err)
		}
	}
	knows(w.S, true, "behind its own step")
	// The database goes back by some steps, and another process takes as many, or more.
	var step int64
	var image, changed string
	w.Scan(`SELECT step, image::text, changed::text FROM postern.coord_state`, &step, &image, &changed)
	w.post("b")
	w.Must(w.turn(w.Ctx, w.S, w.node))
	w.Exec(`UPDATE postern.coord_state SET step = $1, image = $2::text::jsonb, changed = $3::text::jsonb`, step, image,
		changed)
	knows(w.S, false, "ahead of the row")
	for range 3 {
		_, err := other.Domains.Step(w.Ctx, w.id(), []domains.Event{{}})
		w.Must(err)
		knows(w.S, false, "behind a step of another history")
	}
	w.Must(w.turn(w.Ctx, w.S, w.node))
	knows(w.S, true, "behind its own step again")
	w.Exec(`UPDATE postern.store SET life = life + 1`)
	knows(w.S, false, "in another life")
	w.Exec(`UPDATE postern.coord_state SET life = life + 1`) // as a step of another process leaves it
	knows(w.S, false, "behind a step of another life")
}

// A step that never had the seat, since others took too long, leaves the image that is kept: else each that fails on a
// busy machine would have the next one read all that waits.
func TestAStepThatNeverHadTheSeatForgetsNothing(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	w.Must(w.turn(w.Ctx, w.S, w.node))
	tx := w.Begin(w.S.Pool())
	_, err := tx.Exec(w.Ctx, `SELECT FROM postern.coord_state FOR UPDATE`)
	w.Must(err)
	soon, cancel := context.WithTimeout(w.Ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := w.S.Domains.Cancel(soon, w.By, "tok", "a"); err == nil {
		t.Error("a lever was pulled beside another step")
	}
	w.Must(tx.Rollback(w.Ctx))
	if known, _, err := w.S.Domains.KeepsImage(w.Ctx, w.id()); err != nil || !known {
		t.Errorf("its image is known: %t (%v)", known, err)
	}
}
