package reads_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
)

func TestASampleShowsWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.S.SetNow(nil)
	w.Dispatcher("T", nil)
	n := w.Node("alive")
	w.Node("dead")
	sample := func() pgreads.Sample {
		t.Helper()
		v, err := w.S.Reads.TakeSample(w.Ctx)
		w.Must(err)
		return v
	}
	do := func(sql string, args ...any) {
		t.Helper()
		_, err := w.S.Pool().Exec(w.Ctx, sql, args...)
		w.Must(err)
	}
	do(`UPDATE postern.node SET heartbeat_at = heartbeat_at - interval '1 h' WHERE name = 'dead'`)
	if v := sample(); v.Trouble.Forgotten != 0 || v.Trouble.Stalled != 0 || v.Trouble.Nodes != 1 || v.Trouble.OldestDelivery != 0 || v.Trouble.Staged != 0 || v.Trouble.DaysAhead != 3 || v.OldestHeads["RETRY"] != 0 {
		t.Errorf("with nothing wrong: %+v", v)
	}

	w.CalledBack(n, "told", "a", "http://one/")
	do(`UPDATE postern.delivery SET at = at - interval '1 h'`)
	do(`INSERT INTO postern.outbox (context_id, uid, queue, type, data) VALUES ($1, 'staged', 'q', 'T', '{}')`, w.ID)
	do(`UPDATE postern.outbox SET staged_at = staged_at - interval '1 min'`)
	do(`DROP TABLE postern.attempt_` + time.Now().UTC().AddDate(0, 0, 3).Format("20060102"))
	v := sample().Trouble
	if v.OldestDelivery < 3600 || v.OldestDelivery > 3700 || v.Staged < 60 || v.Staged > 160 || v.DaysAhead != 2 || v.Forgotten != 0 {
		t.Errorf("%+v", v)
	}

	for _, name := range []string{"failed", "behind", "read", "paused"} {
		w.Source(func(s *leader.Source) { s.Name = name })
	}
	do(`UPDATE postern.source SET state = CASE name WHEN 'failed' THEN name WHEN 'paused' THEN name ELSE 'running' END, polled_at = clock_timestamp(),
		caught_up_at = clock_timestamp() - CASE name WHEN 'behind' THEN interval '10 min' WHEN 'read' THEN interval '0' ELSE interval '1 h' END`)
	do(`UPDATE postern.source SET caught_up_at = polled_at WHERE name = 'read'`)
	if v := sample().Trouble; v.SourcesFailed != 1 || v.SourceLag < 600 || v.SourceLag > 700 {
		t.Errorf("sources: %+v", v)
	}

	w.Sender("signers", "free", "paused", "blocked", "bound")
	do(`UPDATE postern.sender SET paused = account = 'paused', blocked_until = CASE account WHEN 'blocked' THEN 'infinity'::timestamptz END`)
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "signers" })
	id := w.Post("stands", "S", "s-1")[0]
	do(`WITH q AS (UPDATE postern.queue SET entered_at = entered_at - interval '1 min' WHERE queue_id = $1 RETURNING *)
		UPDATE postern.ready SET since = q.entered_at FROM q WHERE ready.queue_id = q.queue_id`, id.Queue)
	all := sample()
	if v = all.Trouble; v.Stalled < 60 || v.Stalled > 160 || all.Held["signers"] != 2 || all.OldestHeads["FREE"] < 60 || all.OldestHeads["BLOCKED"] != 0 {
		t.Errorf("%+v", all)
	}
	do(`UPDATE postern.sender SET paused = true`)
	if all = sample(); all.Trouble.Stalled != 0 || all.Held["signers"] != 4 {
		t.Errorf("without a free sender: %+v", all)
	}
	do(`DELETE FROM postern.ready WHERE queue_id = $1`, id.Queue)
	if v = sample().Trouble; v.Forgotten != 1 {
		t.Errorf("a lost row: %+v", v)
	}
}
