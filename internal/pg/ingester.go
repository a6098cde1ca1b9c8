package pg

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
)

// Ingester gathers posts, single ones and small batches, into common commits.
type Ingester struct {
	s *Store
	g group[[]*Submission, []Accepted]
}

// NewIngester returns an Ingester over s.
func NewIngester(s *Store) *Ingester {
	i := &Ingester{s: s}
	i.g.limit, i.g.flights = 256, 2
	i.g.weigh = func(subs []*Submission) int { return len(subs) }
	i.g.run = func(ctx context.Context, posts [][]*Submission) ([][]Accepted, error) {
		out, err := s.ingestApart(ctx, slices.Concat(posts...))
		if err != nil {
			return nil, err
		}
		apart := make([][]Accepted, len(posts))
		for k, subs := range posts {
			apart[k], out = out[:len(subs):len(subs)], out[len(subs):]
		}
		return apart, nil
	}
	return i
}

// Submit stores one submission together with whatever else came in meanwhile. A fault about this one is
// in the error; an answer means that it is committed.
func (i *Ingester) Submit(ctx context.Context, sub *Submission) (Accepted, error) {
	out, err := i.g.do(ctx, []*Submission{sub})
	if err != nil {
		return Accepted{}, err
	}
	return out[0], out[0].Err
}

// SubmitBatch stores a batch in one commit, item by item or, if atomic, all or none. A small one shares its commit
// with whatever else came in meanwhile: each commit locks the queues that it writes, and many small ones that lock the
// same queues stand in one another's way. What is worth a flight by itself has one, and nobody waits behind it.
func (i *Ingester) SubmitBatch(ctx context.Context, subs []*Submission, atomic bool) ([]Accepted, error) {
	switch {
	case slices.ContainsFunc(subs, placed):
		return i.s.ingestPlaced(ctx, subs, atomic)
	case atomic:
		return i.s.Ingest(ctx, subs, true)
	case len(subs) >= worthAFlight:
		return i.s.ingestApart(ctx, subs)
	}
	return i.g.do(ctx, subs)
}

// ingestApart ingests a batch; where PostgreSQL refuses a value in it, which fails the whole statement,
// the batch is halved until only the bad item fails.
func (s *Store) ingestApart(ctx context.Context, subs []*Submission) ([]Accepted, error) {
	out, err := s.Ingest(ctx, subs, false)
	if state := sqlState(err); len(state) != 5 || state[:2] != "22" {
		return out, err
	}
	if len(subs) == 1 {
		return []Accepted{{Err: fault.At("/data", "data holds a value that the database cannot store").Because(err)}}, nil
	}
	half := len(subs) / 2
	first, err := s.ingestApart(ctx, subs[:half])
	if err != nil {
		return nil, err
	}
	second, err := s.ingestApart(ctx, subs[half:])
	return append(first, second...), err
}
