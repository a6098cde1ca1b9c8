package pg

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Ingester gathers posts, single ones and small batches, into common commits.
type Ingester struct {
	s *Store
	g db.Group[[]*Submission, []Accepted]
}

// NewIngester returns an Ingester over s.
func NewIngester(s *Store) *Ingester {
	i := &Ingester{s: s}
	i.g.Name = "ingest"
	i.g.Limit, i.g.AtOnce = 256, 2
	i.g.Weigh = func(subs []*Submission) int { return len(subs) }
	i.g.Run, i.g.Partable = s.ingestPosts, s.Partable
	return i
}

// Submit stores one submission together with whatever else came in meanwhile. A fault about this one is
// in the error; an answer means that it is committed.
func (i *Ingester) Submit(ctx context.Context, sub *Submission) (Accepted, error) {
	out, err := i.g.Do(ctx, []*Submission{sub})
	if err != nil {
		return Accepted{}, err
	}
	return out[0], out[0].Err
}

// SubmitBatch stores a batch in one commit, item by item or, if atomic, all or none. A small one shares its commit
// with other posts that came in meanwhile: each commit locks the queues that it writes, and many small ones that lock
// the same queues stand in one another's way. A batch that is worth a round by itself has one, and no post waits
// behind it. So has one with dependencies, since that may take several tries, and is told of by its place in the
// batch.
func (i *Ingester) SubmitBatch(ctx context.Context, subs []*Submission, atomic bool) ([]Accepted, error) {
	switch {
	case slices.ContainsFunc(subs, placed):
		return i.s.ingestPlaced(ctx, subs, atomic)
	case atomic:
		return i.s.Ingest(ctx, subs, true)
	case len(subs) >= db.WorthARound || slices.ContainsFunc(subs, func(sub *Submission) bool { return len(sub.DependsOn) > 0 }):
		return i.s.ingestApart(ctx, subs)
	}
	return i.g.Do(ctx, subs)
}

// ingestPosts ingests posts together, and gives each its answers.
func (s *Store) ingestPosts(ctx context.Context, posts [][]*Submission) ([][]Accepted, error) {
	if len(posts) == 1 {
		out, err := s.ingestApart(ctx, posts[0])
		return [][]Accepted{out}, err
	}
	out, err := s.Ingest(ctx, slices.Concat(posts...), false)
	if err != nil {
		return nil, err
	}
	apart := make([][]Accepted, len(posts))
	for k, subs := range posts {
		apart[k], out = out[:len(subs):len(subs)], out[len(subs):]
	}
	return apart, nil
}

// ingestApart ingests a batch; where that fails and parts of it may be tried, it is parted until the bad items fail
// alone. The error is for all of them, as that of Ingest.
func (s *Store) ingestApart(ctx context.Context, subs []*Submission) (out []Accepted, err error) {
	do := func(part []*Submission) error {
		done, err := s.Ingest(ctx, part, false)
		if err == nil {
			out = append(out, done...)
		}
		return err
	}
	// Where the session was lost, no item is to blame. Parts could then end differently, under an answer that says 200.
	partable := func(err error) bool { return !db.SessionLost(err) && s.Partable(ctx, err) }
	db.Apart(subs, do, partable, func(part []*Submission, e error) {
		switch {
		case refusedValue(e) && len(part) == 1:
			e = fault.At("/data", "data holds a value that the database cannot store").Because(e)
		case len(part) == len(subs):
			err = e
		}
		out = append(out, slices.Repeat([]Accepted{{Err: e}}, len(part))...)
	})
	return out, err
}

// refusedValue says whether PostgreSQL refused a value (class 22).
func refusedValue(err error) bool {
	state := db.SQLState(err)
	return len(state) == 5 && state[:2] == "22"
}
