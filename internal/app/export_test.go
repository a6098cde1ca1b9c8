package app

import (
	"net/http"

	"github.com/postern-dev/postern/internal/pg/stores"
)

// Handler answers as the API does, without a listener; the process must serve.
func (a *App) Handler() http.Handler { return a.api.Handler() }

// Store is the database under the process.
func (a *App) Store() *stores.Store { return a.store }
