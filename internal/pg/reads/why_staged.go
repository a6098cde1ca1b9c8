package reads

import (
	"fmt"

	"github.com/postern-dev/postern/internal/pg"
)

// WhyStaged explains what has been staged and not drained; nil for nil.
func WhyStaged(t *pg.Transaction) *Why {
	if t == nil {
		return nil
	}
	place := "an id"
	if t.Queue != "" {
		place += " and its place in " + t.Queue
	}
	return &Why{State: string(t.State), Moving: true,
		Summary: fmt.Sprintf("staged by SQL at %s; the next drain gives it %s; nothing to do before that",
			clockTime(t.ReceivedAt), place),
		Blockers: []Blocker{{Kind: "staged", Object: "/transactions/by-uid/" + t.UID, Since: t.ReceivedAt,
			Detail: "submitted by SQL and committed, without a position yet: every serve and work process drains several times a second"}}}
}
