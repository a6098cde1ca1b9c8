package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os/user"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// compare puts everything into quarantine where the database ran under another deployment. The process goes on: it
// takes posts.
func compare(ctx context.Context, store *stores.Store, cfg Config, log *slog.Logger) error {
	was, err := store.CompareDeployment(ctx, db.By{Actor: cfg.NodeName, Via: pg.ViaStart}, cfg.Deployment)
	if err != nil {
		return err
	}
	if was != "" {
		log.Error("this database ran under another deployment, so it may be a copy: nothing goes out until postern quarantine release; "+
			"where the name was changed on purpose, postern identity announce comes first",
			"deployment", cfg.Deployment, "database", was)
	}
	return nil
}

// Quarantine is that of the configured database, asked without an API: where none runs, as before a restored database
// is started.
type Quarantine struct {
	*stores.Store
	By db.By
}

// NewQuarantine opens the configured database; it is to be closed. Faults: those of Examine, and migrations_differ.
func NewQuarantine(ctx context.Context, cfg Config) (*Quarantine, error) {
	database, err := cfg.Database()
	if err != nil {
		return nil, err
	}
	store, err := open(ctx, database, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, err
	}
	q := &Quarantine{Store: store, By: db.By{Actor: "postern", Via: "database"}}
	if u, err := user.Current(); err == nil {
		q.By.Actor = u.Username
	}
	return q, nil
}

// Read is GET /quarantine without an API.
func (q *Quarantine) Read(ctx context.Context) ([]byte, error) {
	v, err := q.Store.Quarantine(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(httpapi.ViewQuarantine(v))
}
