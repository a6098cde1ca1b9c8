package pg

import (
	"context"
	"errors"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Insertion is a place in a queue for what is being posted, and who puts it there, for the audit row.
type Insertion struct {
	Place
	By db.By
}

// key is how it goes into the fingerprint.
func (in *Insertion) key() string {
	switch {
	case in.Before != nil:
		return "before " + in.Before.String()
	case in.After != nil:
		return "after " + in.After.String()
	}
	return "head"
}

func placed(sub *Submission) bool { return sub.Insertion != nil }

// ingestPlaced is SubmitBatch with submissions that have a place. Each goes out from there, as by Move, or is refused
// as Move refuses, and then it does not exist: its post and its place are one commit. Without atomic, subs are stored
// in their order, each that has a place by a commit of its own. The first error behind a commit is that of all that
// were not stored yet: a client that is told that nothing was stored would store the others twice.
func (s *Store) ingestPlaced(ctx context.Context, subs []*Submission, atomic bool) (out []Accepted, err error) {
	if atomic {
		return s.insert(ctx, subs)
	}
	for len(subs) > 0 {
		n := slices.IndexFunc(subs, placed)
		part := s.ingestApart
		switch {
		case n == 0:
			n, part = 1, s.insert
		case n < 0:
			n = len(subs)
		}
		more, err := part(ctx, subs[:n])
		if err != nil && len(out) > 0 {
			return append(out, slices.Repeat([]Accepted{{Err: err}}, len(subs))...), nil
		}
		if err != nil {
			return nil, err
		}
		out, subs = append(out, more...), subs[n:]
	}
	return out, nil
}

// insert stores all of subs, each at its place, or none.
func (s *Store) insert(ctx context.Context, subs []*Submission) (out []Accepted, err error) {
	all := func(ctx context.Context) error {
		if out, err = s.Ingest(ctx, subs, true); err != nil || slices.ContainsFunc(out, func(a Accepted) bool { return a.Err != nil }) {
			return err
		}
		for i, sub := range subs {
			if !placed(sub) || out[i].Replay {
				continue
			}
			if _, err := s.moveAs(ctx, sub.Insertion.By, out[i].ID, sub.Insertion.Place, "insert", TxPath(out[i].ID)); err != nil {
				if f := fault.As(err); f.Kind == fault.Internal || f.Kind == fault.Retry {
					return err
				}
				out = make([]Accepted, len(subs))
				out[i].Err = err
				return errNotPlaced
			}
		}
		return nil
	}
	if err := s.EnsureQueues(ctx, subs); err != nil {
		return nil, err
	}
	err = db.Again(func() error { return s.Together(ctx, nil, all) })
	if errors.Is(err, errNotPlaced) {
		err = nil
	}
	return out, err
}

var errNotPlaced = fault.New(fault.Conflict, "wrong_state", "one of them has no place")
