package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// standing is a transaction that waits on purpose: /why has to name this blocker after all that was broken.
type standing struct{ uid, id, blocker string }

// leaveStanding posts what waits for good: nothing may forget why.
func (w *world) leaveStanding(ctx context.Context) error {
	dead := fmt.Sprintf("http://127.0.0.1:%d", freePort())
	for _, one := range [][2]string{
		{"/dispatchers/HALT", `{"worker_url":"` + w.worker.url() + `"}`},
		{"/dispatchers/GONE", `{"worker_url":"` + dead + `"}`},
		{"/pools/none", `{}`},
		{"/dispatchers/POOR", `{"worker_url":"` + w.worker.url() + `","pool":"none"}`},
	} {
		if _, err := w.client.ask(ctx, "PUT", one[0], one[1]); err != nil {
			return err
		}
	}
	if _, err := w.client.ask(ctx, "POST", "/dispatchers/HALT/pause", `{"reason":"chaos"}`); err != nil {
		return err
	}
	for _, s := range []struct{ uid, blocker, body string }{
		{"still-paused", "dispatcher_paused", `{"queue":"still-1","type":"HALT","data":{}}`},
		{"still-gone", "worker_unreachable", `{"queue":"still-2","type":"GONE","data":{}}`},
		{"still-poor", "no_free_sender", `{"queue":"still-3","type":"POOR","data":{}}`},
		{"still-later", "not_before", `{"queue":"still-4","type":"PAY","data":{},"not_before":"2099-01-01T00:00:00Z"}`},
		{"still-behind", "head_of_line", `{"queue":"still-4","type":"PAY","data":{}}`},
		{"still-needs", "dependency", `{"queue":"still-5","type":"PAY","data":{},"depends_on":["still-later"]}`},
	} {
		status, answer := w.client.send(ctx, w.client.apis[0], s.uid, []byte(s.body))
		var said struct{ ID string }
		if json.Unmarshal(answer, &said); status != 201 && status != 200 {
			return fmt.Errorf("%s: %d %s", s.uid, status, answer)
		}
		w.standing = append(w.standing, standing{s.uid, said.ID, s.blocker})
	}
	return nil
}

// why is what Postern says of what waits.
type why struct {
	State    string
	Moving   bool
	Summary  string
	Blockers []struct{ Kind, Object, Detail string }
}

func (y *why) names(kind string) bool {
	for _, b := range y.Blockers {
		if b.Kind == kind {
			return true
		}
	}
	return false
}

// checkStanding: everything has ended, or has a blocker that /why names and that is there. What stands on purpose has
// the one that it was given.
func (w *world) checkStanding(ctx context.Context, api string, rows []row, say func(string, string, ...any)) (stalled []string) {
	const invariant = "nothing stands still"
	meant := map[string]string{}
	for _, s := range w.standing {
		meant[s.uid] = s.blocker
	}
	c, err := pgx.Connect(ctx, w.pg.url())
	if err != nil {
		say(invariant, "%v", err)
		return nil
	}
	defer c.Close(ctx)
	var staged int
	if err := c.QueryRow(ctx, `SELECT count(*) FROM postern.outbox`).Scan(&staged); err != nil || staged > 0 {
		say(invariant, "%d rows are staged still: %v", staged, err)
	}
	for _, r := range rows {
		if terminal[r.state] {
			if meant[r.uid] != "" {
				say(invariant, "%s was to wait for %s, and is %s", r.uid, meant[r.uid], r.state)
			}
			continue
		}
		y, err := w.why(ctx, api, r.id)
		if err != nil {
			say(invariant, "%s in %s is %s, and /why does not tell: %v", r.uid, r.queue, r.state, err)
			stalled = append(stalled, r.uid)
			continue
		}
		want := meant[r.uid]
		if want == "worker_unreachable" && y.names("status_unreachable") { // its call was cut off: it has to be asked first
			want = "status_unreachable"
		}
		if want == "" && len(y.Blockers) > 0 {
			want = y.Blockers[0].Kind
		}
		switch {
		case !y.names(want):
			say(invariant, "%s waits for %q, and /why names %v", r.uid, want, y.Blockers)
		case untrue(ctx, c, r, want, w) != "":
			say(invariant, "%s in %s is %s, and of its blocker %v: %s", r.uid, r.queue, r.state, y.Blockers, untrue(ctx, c, r, want, w))
			stalled = append(stalled, fmt.Sprintf("%s in %s is %s: %s", r.uid, r.queue, r.state, y.Summary))
		}
	}
	for _, s := range w.standing {
		found := false
		for _, r := range rows {
			found = found || r.uid == s.uid
		}
		if !found {
			say("nothing acknowledged is lost", "%s is gone", s.uid)
		}
	}
	return stalled
}

// why asks what a transaction waits for, and asks again for a while where the answer says so, as a user would on a
// machine that is busy.
func (w *world) why(ctx context.Context, api, id string) (*why, error) {
	for end := time.Now().Add(20 * time.Second); ; wait(ctx, 200*time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, "GET", api+"/transactions/"+id+"/why", nil)
		if err != nil {
			return nil, err
		}
		status, answer := w.client.do(r)
		y := &why{}
		if err := json.Unmarshal(answer, y); err == nil && status == 200 {
			return y, nil
		}
		if time.Now().After(end) || status != 0 && !retryable(answer) {
			return nil, fmt.Errorf("%d %s", status, answer)
		}
	}
}

// blockers are the statements that say whether a blocker is there, for the queue $1 and the position $2: none of them
// asks what /why asks. What else can be named is passing, and nothing of it is left a minute behind the last fault.
var blockers = map[string]string{
	"dispatcher_paused": `SELECT EXISTS (SELECT FROM postern.task t JOIN postern.dispatcher d ON (d.context_id, d.type) = (t.context_id, t.type)
		WHERE (t.queue_id, t.seq) = ($1, $2) AND d.paused)`,
	"no_free_sender": `SELECT NOT EXISTS (SELECT FROM postern.task t JOIN postern.dispatcher d ON (d.context_id, d.type) = (t.context_id, t.type)
		JOIN postern.sender s ON s.pool_id = d.pool_id AND s.removed_at IS NULL WHERE (t.queue_id, t.seq) = ($1, $2))`,
	"not_before": `SELECT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq) = ($1, $2) AND t.not_before > clock_timestamp())`,
	"head_of_line": `SELECT EXISTS (SELECT FROM postern.task t WHERE t.queue_id = $1 AND t.seq < $2
		AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (t.queue_id, t.seq)))`,
	"dependency": `SELECT EXISTS (SELECT FROM postern.dependency d WHERE (d.queue_id, d.seq) = ($1, $2)
		AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (d.on_queue, d.on_seq)))`,
	"worker_unreachable": `SELECT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq) = ($1, $2))`,
	"status_unreachable": `SELECT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq) = ($1, $2))`,
}

// untrue says why a blocker that was named is not there, "" if it is.
func untrue(ctx context.Context, c *pgx.Conn, r row, kind string, w *world) string {
	sql, known := blockers[kind]
	if !known {
		return "a " + kind + " passes by itself"
	}
	var there bool
	if err := c.QueryRow(ctx, sql, r.queueID, r.position).Scan(&there); err != nil {
		return err.Error()
	}
	if there && strings.HasSuffix(kind, "_unreachable") {
		var url string
		if err := c.QueryRow(ctx, `SELECT d.settings ->> 'worker_url' FROM postern.task t JOIN postern.dispatcher d
			ON (d.context_id, d.type) = (t.context_id, t.type) WHERE (t.queue_id, t.seq) = ($1, $2)`, r.queueID, r.position).Scan(&url); err != nil {
			return err.Error()
		}
		if l, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
			l.Close()
			return "its worker can be reached"
		}
		return ""
	}
	if !there {
		return "it is not there"
	}
	return ""
}
