package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// historyView is one transition.
type historyView struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	From    string    `json:"from"`
	Event   string    `json:"event"`
	To      string    `json:"to"`
	By      string    `json:"by"`
	Attempt int       `json:"attempt"`
	Detail  string    `json:"detail"`
}

func (a *API) historyOf(ctx context.Context, id outbox.ID) ([]historyView, error) {
	return nil, nil
}
