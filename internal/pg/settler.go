package pg

import (
	"context"
	"strings"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Settler gathers the answers that come in while a commit is in flight into the next one.
type Settler struct {
	s *Store
	g db.Group[*Answer, Settled]
}

// NewSettler returns a Settler over s.
func NewSettler(s *Store) *Settler {
	st := &Settler{s: s}
	st.g.Name = "settle"
	st.g.Limit, st.g.AtOnce = 256, 2
	st.g.Run = s.settleApart
	return st
}

// Settle records one answer together with whatever else came in meanwhile; what others depend on by itself, without
// holding up the rest, since thousands may.
func (st *Settler) Settle(ctx context.Context, a *Answer) (Settled, error) {
	out, err := st.g.Do(ctx, a)
	if err == nil && out.apart {
		out = st.s.settleWatched(context.WithoutCancel(ctx), a)
	}
	if err == nil {
		err = out.Err
	}
	return out, err
}

// settleApart settles a batch; where one answer makes the whole SQL transaction fail (a value that
// PostgreSQL refuses, an outcome that stands already), the batch is halved until only that one fails.
func (s *Store) settleApart(ctx context.Context, answers []*Answer) ([]Settled, error) {
	out, err := s.settleTogether(ctx, answers)
	state := db.SQLState(err)
	if !strings.HasPrefix(state, "22") && !strings.HasPrefix(state, "23") {
		return out, err
	}
	if len(answers) == 1 {
		if a := answers[0]; strings.HasPrefix(state, "22") && (len(a.Result.Done) > 0 || len(a.Result.Data) > 0) {
			plain := *a
			plain.Result.Done, plain.Result.Data = nil, nil
			plain.Step.Message = strings.TrimSpace(plain.Step.Message + " (what the worker sent along could not be stored)")
			return s.settleApart(ctx, []*Answer{&plain})
		}
		return nil, err
	}
	return db.ByHalves(answers, func(part []*Answer) ([]Settled, error) { return s.settleApart(ctx, part) },
		func(_ *Answer, err error) Settled { return Settled{Err: err} }), nil
}
