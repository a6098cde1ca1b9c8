package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// quarantineWithin is how long a process that ends because its database went back tries to put it into quarantine
// first.
const quarantineWithin = 20 * time.Second

// abandon is what a process does last when its database went back: it puts everything there into quarantine, as only
// it knows that commits are gone, and returns why it ends. A process that starts while this is done may call a worker
// meanwhile.
func abandon(ctx context.Context, database string, loss *db.Loss, log *slog.Logger) error {
	why := loss.Err()
	log.Error(why.Detail, "lost_from", loss.From, "lost_until", loss.Until)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quarantineWithin)
	defer cancel()
	for {
		err := enterQuarantine(ctx, database, loss, log)
		if err == nil {
			log.Warn("everything is in quarantine: nothing is dispatched until an operator has run " +
				"postern quarantine reconcile and release")
			why.Detail += "; everything is in quarantine, see docs/restore.md"
			return why
		}
		log.Error("could not put everything into quarantine", "error", err)
		select {
		case <-ctx.Done():
			why.Detail += "; it could not be put into quarantine: run `postern quarantine enter` before anything is started"
			return why
		case <-time.After(time.Second):
		}
	}
}

// enterQuarantine goes through a connection of its own, which has nothing to remember: the pools of the process open
// none any more.
func enterQuarantine(ctx context.Context, database string, loss *db.Loss, log *slog.Logger) error {
	pool, err := db.NewWitness().Connect(ctx, database, 2, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := stores.Open(ctx, pool, log)
	if err != nil {
		return err
	}
	q := pg.Quarantine{Reason: loss.Err().Detail}
	if !loss.From.IsZero() {
		q.LostFrom, q.LostUntil = loss.From, loss.Until
	}
	return store.EnterQuarantine(ctx, db.By{Actor: "service", Via: "lost"}, q)
}

// disowned says whether a process ends because what it holds may be another's by now.
func disowned(err error) bool {
	code := fault.CodeOf(err)
	return code == "database_went_back" || code == "node_gone"
}
