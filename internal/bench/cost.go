package bench

import (
	"context"
	"os"
	"time"
)

// cost is what a run used up.
type cost struct {
	postern, postgres, load float64 // seconds of processor: Postern's processes, PostgreSQL's, and this one, which makes the load
	wal                     int64   // bytes
	fsyncs                  int64   // of the WAL
	updates, hot            int64   // rows of all our tables, and those that stayed on their page
	queueUpdates, queueHot  int64   // rows of queue
	size                    int64   // by which our tables and their indexes have grown, bytes
	rss                     map[string]int64
	waits                   map[string]float64
}

// meter counts from its making on.
type meter struct {
	b     *Bench
	parts map[string]*Process
	began reading
	looks *sampler
}

// reading is what the counters say at one time.
type reading struct {
	postern, postgres, load                                 float64
	wal, fsyncs, updates, hot, queueUpdates, queueHot, size int64
}

// counters reads what the server counts. Its processes report at the latest when they end, so this is
// exact only while nothing of ours is connected.
func (b *Bench) counters(ctx context.Context, r *reading) error {
	fsyncs := `(SELECT wal_sync FROM pg_stat_wal)`
	var major int
	if err := b.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&major); err != nil {
		return err
	}
	if major >= 18 { // counted there from then on
		fsyncs = `(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal')`
	}
	return b.pool.QueryRow(ctx, `SELECT `+fsyncs+`, coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint,
			coalesce(sum(n_tup_upd) FILTER (WHERE relname = 'queue'), 0)::bigint, coalesce(sum(n_tup_hot_upd) FILTER (WHERE relname = 'queue'), 0)::bigint,
			coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
		FROM pg_stat_user_tables WHERE schemaname IN ('postern', 'river')`).
		Scan(&r.fsyncs, &r.updates, &r.hot, &r.queueUpdates, &r.queueHot, &r.size)
}

// lsn is how much WAL the server has ever written.
func (b *Bench) lsn(ctx context.Context) (n int64, err error) {
	err = b.pool.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&n)
	return n, err
}

// used reads the processors' time.
func (m *meter) used() (postern, postgres, load float64) {
	for name, p := range m.parts {
		if _, self, children, ok := stat(p.PID); ok && p.PID != os.Getpid() && name != RoleWorker {
			postern += self + children
		}
	}
	_, load, _, _ = stat(os.Getpid())
	return postern, m.b.serverCPU(), load
}

// meter begins to count what parts and the server use.
func (b *Bench) meter(ctx context.Context, parts map[string]*Process) (*meter, error) {
	m := &meter{b: b, parts: parts}
	if err := b.counters(ctx, &m.began); err != nil {
		return nil, err
	}
	var err error
	if m.began.wal, err = b.lsn(ctx); err != nil {
		return nil, err
	}
	m.began.postern, m.began.postgres, m.began.load = m.used()
	m.looks = b.sample(ctx)
	return m, nil
}

// stop ends the measured time: use after it does not count. The parts are stopped then, so that all has been reported,
// and the counters are read.
func (m *meter) stop(ctx context.Context) (c cost, err error) {
	c.waits = m.looks.stop()
	postern, postgres, load := m.used()
	c.postern, c.postgres, c.load = postern-m.began.postern, postgres-m.began.postgres, load-m.began.load
	wal, err := m.b.lsn(ctx)
	if err != nil {
		return c, err
	}
	c.wal, c.rss = wal-m.began.wal, map[string]int64{}
	for name, p := range m.parts {
		if _, highest := memory(p.PID); p.PID != os.Getpid() {
			c.rss[name] = highest
		}
	}
	for _, p := range m.parts {
		if err := p.Stop(); err != nil {
			return c, err
		}
	}
	m.b.alone(ctx)
	var end reading
	if err := m.b.counters(ctx, &end); err != nil {
		return c, err
	}
	c.fsyncs, c.size = end.fsyncs-m.began.fsyncs, end.size-m.began.size
	c.updates, c.hot = end.updates-m.began.updates, end.hot-m.began.hot
	c.queueUpdates, c.queueHot = end.queueUpdates-m.began.queueUpdates, end.queueHot-m.began.queueHot
	return c, nil
}

// alone waits, a while, until the server has no other client: a backend reports what it wrote when it ends,
// which is a moment after its client has gone.
func (b *Bench) alone(ctx context.Context) {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var others int
		err := b.pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'postern-bench'`).Scan(&others)
		if err != nil || others == 0 {
			return
		}
	}
}
