package pg

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
)

// Ingester gathers single posts into common commits.
type Ingester struct {
	g group[*Submission, Accepted]
}

// NewIngester returns an Ingester over s.
func NewIngester(s *Store) *Ingester {
	i := &Ingester{}
	i.g.limit, i.g.flights = 256, 2
	i.g.run = func(ctx context.Context, subs []*Submission) ([]Accepted, error) { return s.ingestApart(ctx, subs) }
	return i
}

// Submit stores one submission together with whatever else came in meanwhile. A fault about this one is
// in the error; an answer means that it is committed.
func (i *Ingester) Submit(ctx context.Context, sub *Submission) (Accepted, error) {
	a, err := i.g.do(ctx, sub)
	if err == nil {
		err = a.Err
	}
	return a, err
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

// IngestBatch stores a batch in one commit, item by item or, if atomic, all or none.
func (s *Store) IngestBatch(ctx context.Context, subs []*Submission, atomic bool) ([]Accepted, error) {
	if slices.ContainsFunc(subs, placed) {
		return s.ingestPlaced(ctx, subs, atomic)
	}
	if atomic {
		return s.Ingest(ctx, subs, true)
	}
	return s.ingestApart(ctx, subs)
}
