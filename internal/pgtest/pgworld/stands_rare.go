package pgworld

import (
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// rare are those that operators made, and those that have ended.
var rare = []Stand{
	{"others were placed ahead of it", "head_of_line,placed_ahead,unclaimed", "third in q", "/nodes",
		func(w *World) outbox.ID {
			w.Node("n")
			ids := w.Post("q", "T", "a", "b", "c")
			w.Lever(w.S.Move(w.Ctx, w.By, ids[2], pg.Place{Before: &ids[1]}))
			return ids[1]
		}},
	{"it was let go, and not put into its lane", "held", "the sweep of a process that works does that", "/cancel",
		func(w *World) outbox.ID {
			w.Node("n")
			id := w.Post("q", "T", "a")[0]
			w.Lever(w.S.Suspend(w.Ctx, w.By, id))
			w.Exec(`DELETE FROM postern.mark`)
			w.Exec(`UPDATE postern.queue SET marks = 0`)
			return id
		}},
	{"everything is in quarantine", "quarantined", "everything is in quarantine, entered by test", "/quarantine",
		func(w *World) outbox.ID {
			w.Node("n")
			w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "a drill"}))
			return w.Post("q", "T", "a")[0]
		}},
	{"its type is in quarantine", "quarantined", "entered by test", "/quarantine", func(w *World) outbox.ID {
		w.Node("n")
		w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Type: "T", Reason: "a drill"}))
		return w.Post("q", "T", "a")[0]
	}},
	{"commits may be lost", "quarantined", "entered by test", "/quarantine", func(w *World) outbox.ID {
		w.Node("n")
		lost := pg.Quarantine{Reason: "a restore", LostFrom: w.Now.Add(-time.Hour), LostUntil: w.Now}
		w.Must(w.S.EnterQuarantine(w.Ctx, w.By, lost))
		return w.Post("q", "T", "a")[0]
	}},
	{"its sender was removed", "sender_blocked", "only acct-1 may take it, and it was removed", "/senders/acct-1",
		func(w *World) outbox.ID {
			w.Node("n")
			w.pooled()
			w.Sender("p", "acct-1", "acct-2")
			id := w.Named("q", "S", "a", "acct-1")
			w.Must(w.S.RemoveSender(w.Ctx, w.By, "acct-1"))
			return id
		}},
	{"its sender is blocked", "sender_blocked", "only acct-1 may take it, and it is blocked until somebody",
		"/senders/acct-1/unblock",
		func(w *World) outbox.ID {
			w.Node("n")
			w.pooled()
			w.Sender("p", "acct-1", "acct-2")
			w.Lever(w.S.BlockSender(w.Ctx, w.By, "acct-1", pg.Forever))
			return w.Named("q", "S", "a", "acct-1")
		}},
	{"its only sender is paused", "sender_blocked", "it is paused (by test): because", "/senders/acct-1/resume",
		func(w *World) outbox.ID {
			w.Node("n")
			w.pooled()
			w.Sender("p", "acct-1")
			w.Lever(w.S.PauseSender(w.Ctx, w.By, "acct-1", true))
			return w.Post("q", "S", "a")[0]
		}},
	{"its only sender is drained", "sender_blocked", "it is drained, and takes only what names it",
		"/senders/acct-1/resume",
		func(w *World) outbox.ID {
			w.Node("n")
			w.pooled()
			w.Sender("p", "acct-1")
			w.Lever(w.S.DrainSender(w.Ctx, w.By, "acct-1"))
			return w.Post("q", "S", "a")[0]
		}},
	{"it has failed", "terminal", "ended FAILED", "/redrive", func(w *World) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		rejected := outbox.Answer{Class: outbox.ClassRejected, Code: "422", Message: "never"}
		w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], rejected))
		return id
	}},
	{"it was abandoned", "terminal", "ended UNRESOLVED", "/redrive", func(w *World) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Claim(w.Node("n"), Everything())
		w.Lever(w.S.Abandon(w.Ctx, w.By, id))
		return id
	}},
}
