package pg

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Rehearse is what connections of parts practise, as of now.
func (s *Store) Rehearse(p Part) ([]string, error) { return rehearse(p, s.spanNow(), time.Now().UTC()) }

// Reads is what those that post practise besides, as of now.
func (s *Store) Reads() map[string][]any { return reads(s.spanNow()) }

func (s *Store) spanNow() db.Span {
	span, _ := s.SpanOf(outbox.DayOf(time.Now()))
	return span
}

// FailAtOnce is how many dependents an end takes along from now on.
func (s *Store) FailAtOnce(n int) { s.failAtOnce = n }

// NamedSQL are the statements of the lists by name, with context, the name to go on from and the limit.
var NamedSQL = map[string]func(contextID int32) (string, []any){
	"queues": func(c int32) (string, []any) {
		return queuesSQL, []any{c, "q5", "", "", []string{}, nil, 0, 51, "0", nil}
	},
	"senders": func(c int32) (string, []any) { return sendersSQL, []any{c, "", nil, "acct-5", 51} },
	"pools":   func(c int32) (string, []any) { return poolsSQL, []any{c, nil, "p5", 51} },
}

// Recallable says whether an answer is settled by what its lease remembers; Forgetful, whether such a memory was wrong.
func (s *Store) Recallable(a *Answer) bool { return s.recallable([]*Answer{a}) }
func (s *Store) Forgetful() bool           { return s.forgetful.Load() > 0 }

// PlaceSQL is the statement that finds a place.
const PlaceSQL = placeSQL

// Distrust makes the next settlements read the rows.
func (s *Store) Distrust() { s.forgetful.Store(recallAgain) }

// LockSQL are the statements that lock the queues of a list, and one; FromFronts lets claims read ready from where they
// found it, or no more. LookedBack has LookBack look, from the beginning or nearby, and says whether claims leave that
// to it now.
var LockSQL, LockOneSQL = lockingQueues("q.queue_id", "").Many, lockingQueues("q.queue_id", "").One

func (s *Store) FromFronts(on bool) {
	s.fronts.mu.Lock()
	defer s.fronts.mu.Unlock()
	s.fronts.aside, s.fronts.next = on, time.Now()
}

func (s *Store) LookedBack(ctx context.Context, whole bool) (aside bool, err error) {
	s.fronts.mu.Lock()
	s.fronts.nearby, s.fronts.all = time.Now(), time.Now()
	if !whole {
		s.fronts.all = time.Now().Add(time.Hour)
	}
	s.fronts.mu.Unlock()
	err = s.LookBack(ctx)
	s.fronts.mu.Lock()
	defer s.fronts.mu.Unlock()
	return s.fronts.aside, err
}

// JudgeFor bounds what is judged under the locks of a round, and returns how to take that back. For tests that run
// alone.
func JudgeFor(d time.Duration) (back func()) {
	was := judgeFor
	judgeFor = d
	return func() { judgeFor = was }
}

// AnsweredAgo says when the database answered last.
func (s *Store) AnsweredAgo(d time.Duration) {
	s.answered.Lock()
	defer s.answered.Unlock()
	s.answered.at = time.Now().Add(-d)
}

// NewestSQL are statements that have to find the newest version of a queue's row alone, of many queues and of one, with
// their arguments.
func NewestSQL(id int64) map[string][]any {
	ids, tail := []int64{id}, uint64(1|1<<slices.IndexFunc(stored, func(c queueColumn) bool {
		return c.name == "tail_seq"
	}))
	return map[string][]any{
		LockSQL:    {ids, []int32{0}},
		LockOneSQL: {id, 0},
		guardSQL.Many: {ids, []int64{1}, []int64{1}, []*int64{nil}, []int32{1},
			[]int16{1}, []*int32{nil}, []int32{0}},
		guardSQL.One:                        {id, 1, 1, nil, 1, 1, nil, 0},
		"SELECT q.queue_id" + candidatesSQL: {1, 100, false, time.Time{}, time.Time{}},
		"SELECT q.queue_id" + exclusiveSQL:  {1, 100, false, time.Time{}, time.Time{}, nil},
		updateText(tail, 0):                 {ids, []int64{1}, []int32{0}},
		updateText(tail, tail):              {id, 1, 0},
	}
}

// ForgetName drops a queue's name from what this process remembers, as an ingest does that finds the row reaped.
func (s *Store) ForgetName(contextID int32, name string) { s.forgetQueue(s.QueueID(contextID, name)) }

// LooksAt are the looks at what has not ended in a queue, as a post and the end of its head have them.
func LooksAt(q *QueueRow) map[string][]any {
	head, day := []int64{q.Head}, q.HeadDay.Time()
	return map[string][]any{
		nextUnsettledSQL:   {q.ID, q.from(head), day, head, q.Head},
		OldestUnsettledSQL: {q.ID, q.from(head), day, head},
		depthSQL:           {q.ID, q.Head, day, max(q.Head, q.Past)},
	}
}

// LaneSQL makes an exclusive lane for a value of a dispatcher ($2, $5).
var LaneSQL = laneKey{Dispatcher: 1, Exclusive: true}.sql()
