package ledger

import (
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/devnet"
)

// eventsMost is the largest page of the event log.
const eventsMost = 1000

// effects are the events of a transaction that did well, one for each call.
func effects(e *entry) []devnet.Event {
	out := make([]devnet.Event, len(e.tx.Calls))
	for i, c := range e.tx.Calls {
		typ := c.Method
		if typ == "" {
			typ = "transfer"
		}
		out[i] = devnet.Event{ID: e.hash + ":" + strconv.Itoa(i), Checkpoint: e.height, Digest: e.hash, Index: i, Type: typ,
			From: e.tx.From, To: c.To, Amount: c.Amount, Memo: e.tx.Memo, Args: c.Args}
	}
	return out
}

func cursorOf(e devnet.Event) string { return strconv.FormatUint(e.Checkpoint, 10) + ":" + e.ID }

// Events reads the event log from a cursor on, whose event comes first, or from the beginning. An error is
// a *devnet.Refusal.
func (l *Ledger) Events(cursor string, limit int) (devnet.Events, error) {
	if limit < 2 || limit > eventsMost { // one event would be the one of the cursor, for ever
		return devnet.Events{}, refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "limit is %d: want 2 to %d", limit, eventsMost)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, err := l.find(cursor)
	if err != nil {
		return devnet.Events{}, err
	}
	rest := l.events[at:]
	out := devnet.Events{Events: append([]devnet.Event{}, rest[:min(limit, len(rest))]...), NextCursor: cursor, HasMore: len(rest) > limit}
	if n := len(out.Events); n > 0 {
		out.NextCursor = cursorOf(out.Events[n-1])
	}
	return out, nil
}

// find returns where the event of a cursor stands, 0 for none.
func (l *Ledger) find(cursor string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	height, _, _ := strings.Cut(cursor, ":")
	checkpoint, err := strconv.ParseUint(height, 10, 64)
	if err == nil {
		for at := sort.Search(len(l.events), func(i int) bool { return l.events[i].Checkpoint >= checkpoint }); at < len(l.events) && l.events[at].Checkpoint == checkpoint; at++ {
			if cursorOf(l.events[at]) == cursor {
				return at, nil
			}
		}
	}
	return 0, refuse(http.StatusNotFound, devnet.CodeNotFound, "the cursor %s names no event of chain %s: begin without one", fmt.Sprintf("%.64q", cursor), l.chain)
}
