package app

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/pg/stores"
)

// Handler answers as the API does, without a listener; the process must serve.
func (a *App) Handler() http.Handler { return a.api.Handler() }

// Measured answers as the address of the metrics does, without a listener; the process must have metrics.
func (a *App) Measured() http.Handler { return a.metricsServer.Handler }

// Store is the database under the process.
func (a *App) Store() *stores.Store { return a.store }

// Courier takes requests from a node for a door until the end of ctx, and then answers what it has taken.
func Courier(ctx context.Context, node string, door http.Handler, log *slog.Logger) error {
	c := newCourier(node, door, log)
	c.run(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return c.end(last)
}
