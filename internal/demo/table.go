package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/outbox"
)

// counts returns how many samples are in each state.
func (r *run) counts() map[outbox.State]int {
	n := map[outbox.State]int{}
	for _, l := range r.byUID {
		n[l.tx.State]++
	}
	return n
}

// line tells one line of progress.
func (r *run) line() {
	n := r.counts()
	var parts []string
	for _, s := range outbox.States {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", s, n[s]))
		}
	}
	busy := 0
	for _, s := range r.senders {
		if s.Queue != "" {
			busy++
		}
	}
	fmt.Fprintf(r.Out, "%5.1f s  %s  (%d of %d senders busy)\n", time.Since(r.posted).Seconds(),
		strings.Join(parts, "  "), busy, len(Accounts))
}

// rows is the table of queues and senders, without trailing newline.
func (r *run) rows() []string {
	var b strings.Builder
	n := r.counts()
	fmt.Fprintf(&b, "%s   run %s   %.1f s   %d of %d ended\n\n", r.API, r.Name, time.Since(r.posted).Seconds(),
		n[outbox.DONE]+n[outbox.FAILED]+n[outbox.UNRESOLVED]+n[outbox.CANCELLED], len(r.byUID))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "queue\tstate\tin flight\tsender\twaiting\tdone\tended otherwise")
	for _, q := range r.queues() {
		state, flying, sender := "FREE", "-", "-"
		var waiting, done, other int
		for _, uid := range r.order {
			switch t := r.byUID[uid].tx; {
			case t.Queue != q:
			case t.State == outbox.WAITING:
				waiting++
			case t.State == outbox.DONE:
				done++
			case t.State.Terminal():
				other++
			default:
				state, flying, sender = t.QueueState, string(t.State), short(t.Sender)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\n", q, state, flying, sender, waiting, done, other)
	}
	w.Flush()
	fmt.Fprintln(&b)
	fmt.Fprintln(w, "sender\tstate\tqueue")
	for _, s := range r.senders {
		queue := s.Queue
		if queue == "" {
			queue = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", short(s.Account), s.State, queue)
	}
	w.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// short shows as much of an account as tells it from the others.
func short(account string) string {
	if len(account) > 10 {
		return account[:10] + ".."
	}
	return account
}

// table is drawn again and again in the same place of a terminal.
type table struct{ drawn int }

// draw goes back to the first line of the last table and writes the new one over it. Lines are cut at
// the width, since one that wraps would take two.
func (t *table) draw(w io.Writer, lines []string, columns int) {
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	for _, line := range lines {
		if columns > 0 && utf8.RuneCountInString(line) > columns {
			line = string([]rune(line)[:columns])
		}
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J") // removes the lines that a longer table left
	t.drawn = len(lines)
	io.WriteString(w, b.String())
}
