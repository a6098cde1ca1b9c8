package flows_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// offers puts n offers of python in front of all others, as rows that copy one.
func (w *world) offers(n int) {
	w.T.Helper()
	w.post(0)
	w.Exec(`INSERT INTO postern.job_try (try_id, context_id, job_id, queue_id, seq, attempt, token, lane, state,
			offered_at)
		SELECT gen_random_uuid(), t.context_id, t.job_id, t.queue_id, t.seq, t.attempt, gen_random_uuid()::text, t.lane,
			t.state, t.offered_at - n * interval '1 ms'
		FROM (SELECT * FROM postern.job_try WHERE state = 'Offered' ORDER BY offered_at DESC LIMIT 1) t,
			generate_series(1, $1::int) n`, n)
	w.Exec(`VACUUM (ANALYZE) postern.job_try`)
}

// pages is the least number of pages of tries that a claim of one of the named runners reads: a claim whose tries go to
// a full page of an index splits it, which reads more.
func (w *world) pages(s *stores.Store, names ...string) (least int) {
	w.T.Helper()
	for i, name := range names {
		if n := w.pagesOf(s, name); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// pagesOf is how many pages of tries one claim reads, by one session alone, whose counts are told at once.
func (w *world) pagesOf(s *stores.Store, name string) int {
	w.T.Helper()
	read := func() (n int) {
		w.Must(pgx.BeginFunc(w.Ctx, s.Pool(), func(t pgx.Tx) error {
			_, err := t.Exec(w.Ctx, `SELECT pg_stat_force_next_flush()`)
			return err
		}))
		w.Scan(`SELECT (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::int
			FROM pg_statio_all_tables
			WHERE relid = 'postern.job_try'::regclass`, &n)
		return n
	}
	before := read()
	list, err := w.claim(s, name)
	w.Must(err)
	if len(list) != 2 {
		w.T.Fatalf("%d tries, want 2", len(list))
	}
	return read() - before
}

// alone opens a store that has one session.
func (w *world) alone() *stores.Store {
	w.T.Helper()
	pool, err := pg.Connect(w.Ctx, w.S.Pool().Config().ConnString(), 1)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	s, err := stores.Open(context.WithoutCancel(w.Ctx), pool, pgworld.Quiet)
	w.Must(err)
	s.SetNow(&w.Now)
	return s
}

// A claim takes the oldest of its lane from an index. It reads as many pages with 40,000 offers as with 2,000, but for
// the depth of its indexes; and with most of them of another type, in front, as well.
func TestAClaimCostsTheSameInFrontOfManyOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("first", "a", "b", "c", "d", "e", "f", "g", "h", "i")
	s := w.alone()
	w.offers(2000)
	w.pages(s, "first") // the first plans its statements
	few := w.pages(s, "a", "b", "c")
	w.offers(38_000)
	many := w.pages(s, "d", "e", "f")
	w.Exec(`UPDATE postern.job_try SET lane = 'sal' WHERE state = 'Offered' AND offered_at < (
		SELECT percentile_disc(0.8) WITHIN GROUP (ORDER BY offered_at) FROM postern.job_try WHERE state = 'Offered')`)
	w.Exec(`VACUUM (ANALYZE) postern.job_try`)
	others := w.pages(s, "g", "h", "i")
	t.Logf("a claim of two tries reads %d pages with 2,000 offers, %d with 40,000, %d with others in front", few, many,
		others)
	for _, n := range []int{many, others} {
		if float64(n) > 1.2*float64(few)+4 { // an index may have a level more
			t.Errorf("a claim reads %d pages where there are many, and %d where there are few", n, few)
		}
	}
}
