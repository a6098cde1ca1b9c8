package batches_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// row is a line of processor p under test, beside a plain list that must look the same.
type row struct {
	*world
	name   string
	prio   processor.Priority
	plain  []int64
	values map[int64]string // what a vector calls the ids
}

func (w *world) processor(name string) *row {
	w.T.Helper()
	_, err := w.S.Batches.PutProcessor(w.Ctx, w.By, batches.Processor{Name: name}, 0)
	w.Must(err)
	return &row{world: w, name: name, prio: processor.Med, values: map[int64]string{}}
}

func (r *row) insert(position int) {
	r.T.Helper()
	id, err := r.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{Position: int64(position)})
	r.Must(err)
	r.plain = slices.Insert(r.plain, position, id)
}

// beside puts one directly before or after the batch at a position.
func (r *row) beside(position int, after bool) {
	r.T.Helper()
	spot := processor.Spot{Before: r.plain[position]}
	if after {
		spot, position = processor.Spot{After: spot.Before}, position+1
	}
	id, err := r.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, spot)
	r.Must(err)
	r.plain = slices.Insert(r.plain, position, id)
}

func (r *row) remove(position int) int64 {
	r.T.Helper()
	id, err := r.S.Batches.TakeFromLine(r.Ctx, r.ID, r.name, r.prio, int64(position))
	r.Must(err)
	if want := r.plain[position]; id != want {
		r.T.Fatalf("removed %d at %d, want %d", id, position, want)
	}
	r.plain = slices.Delete(r.plain, position, position+1)
	return id
}

// part is a part of the line as the database tells it.
func (r *row) part(from, to int, desc bool, limit int) ([]int64, error) {
	ids, length, err := r.S.Batches.Standing(r.Ctx, r.ID, r.name, r.prio, processor.Range{From: int64(from), To: int64(to), Desc: desc, Limit: int64(limit)})
	if err == nil && length != int64(len(r.plain)) {
		r.T.Fatalf("it says that %d stand in line, and there are %d", length, len(r.plain))
	}
	return ids, err
}

// same compares the whole line with the plain list, in both directions, and the bounds with the places.
func (r *row) same() {
	r.T.Helper()
	for _, desc := range []bool{false, true} {
		got, err := r.part(0, -1, desc, 1<<20)
		r.Must(err)
		want := slices.Clone(r.plain)
		if desc {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			r.T.Fatalf("desc %v: the line is %v, want %v", desc, got, want)
		}
	}
	var beyond int
	r.Must(r.S.Pool().QueryRow(r.Ctx, `SELECT count(*) FROM postern.batch_place p JOIN postern.batch_line l USING (processor_id, priority)
		WHERE p.place < l.lowest OR p.place > l.highest`).Scan(&beyond))
	if beyond != 0 {
		r.T.Fatalf("%d stand beyond the bounds of their line", beyond)
	}
}

func (r *row) refused(what string, err error) {
	r.T.Helper()
	if err == nil || fault.KindOf(err) != fault.Invalid || fault.As(err).Detail != what {
		r.T.Errorf("%v, want %q", err, what)
	}
	r.same()
}

// S4.3, with the vectors of the system that the seed describes.
func TestTheLineDoesWhatTheVectorsSay(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../shared/vectors/valence_queuemap.json")
	if err != nil {
		t.Skipf("the vectors are not beside this checkout: %v", err)
	}
	var file struct {
		Cases []struct {
			Name string
			Ops  [][]any
		}
	}
	pgworld.OK(t, json.Unmarshal(text, &file))
	w := newWorld(t)
	for i, c := range file.Cases {
		r := w.processor(fmt.Sprintf("v%d", i))
		for _, op := range c.Ops {
			r.vector(t, c.Name, op)
		}
	}
	if len(file.Cases) < 4 {
		t.Errorf("%d vectors, want 4", len(file.Cases))
	}
}

func (r *row) vector(t *testing.T, name string, op []any) {
	t.Helper()
	number := func(i int) int {
		if op[i] == nil {
			return 0
		}
		return int(op[i].(float64))
	}
	list := func(ids []int64) (values []any) {
		for _, id := range ids {
			var v any
			pgworld.OK(t, json.Unmarshal([]byte(r.values[id]), &v))
			values = append(values, v)
		}
		return values
	}
	insert := func(at int, value any) {
		text, err := json.Marshal(value)
		pgworld.OK(t, err)
		r.insert(at)
		r.values[r.plain[at]] = string(text)
	}
	var got, want any
	switch op[0] {
	case "push":
		insert(len(r.plain), op[1])
	case "insert":
		insert(number(1), op[2])
	case "pop":
		want = op[1]
		if len(r.plain) > 0 {
			got = list([]int64{r.remove(0)})[0]
		}
	case "remove":
		got, want = list([]int64{r.remove(number(1))})[0], op[2]
	case "len":
		p, err := r.S.Batches.Processor(r.Ctx, r.ID, r.name)
		pgworld.OK(t, err)
		got, want = float64(p.Length[r.prio]), op[1]
	case "empty":
		got, want = len(r.plain) == 0, op[1]
	case "list":
		ids, err := r.part(0, -1, false, 0)
		pgworld.OK(t, err)
		got, want = list(ids), op[1]
	case "range":
		to := -1
		if op[2] != nil {
			to = number(2)
		}
		ids, err := r.part(number(1), to, op[3] == "desc", 0)
		pgworld.OK(t, err)
		got, want = list(ids), op[4]
	case "range_err":
		_, err := r.part(number(1), number(2), false, 0)
		r.refused("Invalid range", err)
	case "insert_err":
		_, err := r.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{Position: int64(number(1))})
		r.refused("Index out of bounds", err)
	case "remove_err":
		_, err := r.S.Batches.TakeFromLine(r.Ctx, r.ID, r.name, r.prio, int64(number(1)))
		r.refused("Index out of bounds", err)
	default:
		t.Fatalf("%s: operation %v is not known here", name, op)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v: got %v", name, op, got)
	}
	r.same()
}

// S4.3: also on an empty line, and for ranges that end beyond it.
func TestWhatIsOutOfBoundsIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newWorld(t).processor("p")
	for n := range 3 {
		for _, at := range []int64{-1, int64(n)} {
			_, err := r.S.Batches.TakeFromLine(r.Ctx, r.ID, r.name, r.prio, at)
			r.refused("Index out of bounds", err)
		}
		for _, at := range []int64{-1, int64(n + 1), 1 << 62} {
			_, err := r.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{Position: at})
			r.refused("Index out of bounds", err)
		}
		for _, x := range [][2]int{{-1, 0}, {1, 0}, {0, n + 1}, {n + 1, -1}} {
			_, err := r.part(x[0], x[1], false, 0)
			r.refused("Invalid range", err)
		}
		r.insert(n)
	}
	if _, err := r.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{After: 99999}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("beside a batch that is nowhere: %v", err)
	}
	if _, err := r.S.Batches.PutInLine(r.Ctx, r.ID, r.name, processor.High, processor.Spot{Before: r.plain[0]}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("beside a batch of the other line: %v", err)
	}
	if _, _, err := r.S.Batches.Standing(r.Ctx, r.ID, "nobody", r.prio, processor.Range{}); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	r.same()
}

// S4: a long random run equals a plain list, with many lines side by side. One spot is preferred, so that the
// room between two places is used up again and again.
func TestALongRandomRunEqualsAPlainList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lines := []*row{w.processor("a"), w.processor("b"), nil}
	high := *lines[0]
	high.prio, lines[2] = processor.High, &high
	draw := rand.New(rand.NewPCG(4, 3))
	for i := range 900 {
		r := lines[draw.IntN(len(lines))]
		n := len(r.plain)
		switch d := draw.IntN(10); {
		case n == 0 || d < 2:
			r.insert(n)
		case d == 2:
			r.insert(0)
		case d < 5:
			r.insert(n / 2)
		case d < 7:
			r.beside(n/2, d == 5)
		case d == 7:
			r.insert(draw.IntN(n + 1))
		case d == 8:
			r.remove(0)
		default:
			r.remove(draw.IntN(n))
		}
		if i%100 == 99 {
			for _, r := range lines {
				r.same()
			}
		}
	}
	for _, r := range lines {
		for len(r.plain) > 0 {
			r.remove(draw.IntN(len(r.plain)))
		}
		r.same()
	}
}

// Twenty batches fit between two; more are put there all the same, and who stands behind is not renumbered.
func TestOneSpotTakesAnyNumberOfBatches(t *testing.T) {
	t.Parallel()
	r := newWorld(t).processor("p")
	for i := range 100 {
		r.insert(i)
	}
	places := func() (all map[int64]int64) {
		all = map[int64]int64{}
		rows, err := r.S.Pool().Query(r.Ctx, `SELECT batch_id, place FROM postern.batch_place`)
		r.Must(err)
		defer rows.Close()
		for rows.Next() {
			var id, place int64
			r.Must(rows.Scan(&id, &place))
			all[id] = place
		}
		return all
	}
	before, moved := places(), map[int64]bool{}
	for i := range 60 {
		r.beside(10, i%2 == 0)
		for id, place := range places() {
			if was, known := before[id]; known && was != place {
				moved[id] = true
			}
		}
	}
	r.same()
	if len(moved) == 0 {
		t.Error("no places were dealt anew: the test does not reach what it is for")
	}
	for _, id := range r.plain[110:] {
		if moved[id] {
			t.Errorf("batch %d, far behind the spot, was given another place", id)
		}
	}
}

// Places end somewhere; a line that gets there is dealt anew, from either end.
func TestALineThatReachesTheEdgeIsDealtAnew(t *testing.T) {
	t.Parallel()
	r := newWorld(t).processor("p")
	for i := range 5 {
		r.insert(i)
	}
	for _, by := range []int64{1 << 61, -(1 << 61)} {
		r.Exec(`UPDATE postern.batch_place SET place = place + $1`, by)
		r.Exec(`UPDATE postern.batch_line SET lowest = (SELECT min(place) FROM postern.batch_place), highest = (SELECT max(place) FROM postern.batch_place) WHERE length > 0`)
		at := 0
		if by > 0 {
			at = len(r.plain)
		}
		r.insert(at)
		r.same()
	}
}

// Two sessions change one line at the same moment: the second waits for the first, and counts with what it did.
func TestTwoChangesOfALineComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.Other()
	for i, second := range []func(r *row) (int64, error){
		func(r *row) (int64, error) {
			return o.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{Position: 3})
		},
		func(r *row) (int64, error) { return o.S.Batches.TakeFromLine(r.Ctx, r.ID, r.name, r.prio, 0) },
	} {
		r := w.processor(fmt.Sprintf("p%d", i))
		r.insert(0)
		r.insert(1)
		held, finish := pgworld.Hold(w.S, 1)
		first, next := make(chan int64, 1), make(chan int64, 1)
		go func() {
			id, err := w.S.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{})
			if err != nil {
				t.Error(err)
			}
			first <- id
		}()
		<-held
		go func() {
			id, err := second(r)
			if err != nil {
				t.Error(err)
			}
			next <- id
		}()
		w.AwaitBlocked(o.PID)
		finish(nil)
		a, b := <-first, <-next
		if i == 0 {
			r.plain = append([]int64{a}, append(r.plain, b)...) // position 3 is there only after the first
		} else if a != b {
			t.Errorf("removed %d from the head, want %d, which has just been put there", b, a)
		}
		r.same()
	}
}

// A processor is not removed while a batch is put into it, and takes none when it is removed.
func TestAProcessorIsNotRemovedUnderItsBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.Other()
	for _, putFirst := range []bool{true, false} {
		r := w.processor(fmt.Sprintf("p-%v", putFirst))
		put := func(s *stores.Store) error {
			_, err := s.Batches.PutInLine(r.Ctx, r.ID, r.name, r.prio, processor.Spot{})
			return err
		}
		remove := func(s *stores.Store) error { return s.Batches.RemoveProcessor(w.Ctx, w.By, r.name) }
		first, second := remove, put
		want := fault.NotFound
		if putFirst {
			first, second, want = put, remove, fault.Conflict
		}
		held, finish := pgworld.Hold(w.S, 1)
		said, answered := make(chan error, 1), make(chan error, 1)
		go func() { said <- first(w.S) }()
		<-held
		go func() { answered <- second(o.S) }()
		w.AwaitBlocked(o.PID)
		finish(nil)
		pgworld.OK(t, <-said)
		if err := <-answered; fault.KindOf(err) != want {
			t.Errorf("put first %v: the second said %v", putFirst, err)
		}
	}
}
