package messages_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// counting counts the bytes that are read.
type counting struct {
	io.Reader
	n *atomic.Int64
}

func (c counting) Read(b []byte) (n int, err error) {
	n, err = c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// counted opens a second store on the database. sent says how many bytes PostgreSQL has sent it since sent was called
// before.
func (w *world) counted() (s *stores.Store, sent func() int64) {
	w.T.Helper()
	var n atomic.Int64
	cfg := w.S.Pool().Config()
	build := cfg.ConnConfig.BuildFrontend
	cfg.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return build(counting{r, &n}, w)
	}
	pool, err := pgxpool.NewWithConfig(w.Ctx, cfg)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	s, err = stores.Open(w.Ctx, pool, pgworld.Quiet)
	w.Must(err)
	s.SetNow(&w.Now)
	s.Messages.Open = true
	n.Store(0)
	return s, func() int64 { return n.Swap(0) }
}

// Who reads many messages reads none of their texts, but for a receive, which reads as many bodies as it hands out.
func TestWhoReadsManyMessagesReadsNoTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many, each = 6, 1 << 20
	for n := range many {
		w.post(w.chat(strings.Repeat(fmt.Sprint(n), each), func(p *messages.Posted) { p.Timeouts.Ack = time.Hour }))
		w.Later(time.Second)
	}
	w.Exec(`UPDATE postern.message SET envelope = convert_to(body, 'UTF8') WHERE body < '3'`)
	s, sent := w.counted()
	reads := func(what string, n, want int, bodies int64, err error) {
		t.Helper()
		got := sent()
		if err != nil || n != want || got < bodies*each || got > bodies*each+each/2 {
			t.Errorf("%s: %d messages and %d bytes, want %d and %d bodies: %v", what, n, got, want, bodies, err)
		}
	}
	n, err := s.Messages.Route(w.Ctx)
	reads("route", n, many, 0, err)
	list, _, err := s.Messages.List(w.Ctx, w.shop.Context, messages.Filter{Box: messages.In, Limit: many})
	reads("list", len(list), many, 0, err)
	for i, m := range list {
		if signed := len(m.Envelope) > 0; signed != (i >= many/2) {
			t.Errorf("message %d of the list is signed: %v", i, signed)
		}
	}
	list, err = w.receive(s, many)
	reads("receive", len(list), 4, 4, err)
	for i, m := range list {
		if m.Body != strings.Repeat(fmt.Sprint(i), each) || len(m.Envelope) > 0 != (i < many/2) || m.Fence == 0 {
			t.Errorf("message %d begins with %.9q, and its envelope has %d bytes", i, m.Body, len(m.Envelope))
		}
	}
	list, err = w.receive(s, many)
	reads("receive", len(list), 2, 2, err)
	w.Later(time.Hour)
	n, err = s.Messages.Expire(w.Ctx)
	reads("expire", n, many, 0, err)
}

// One commit routes as many jobs, and settles as many results, as have 4 MiB; the next one goes on with the others.
func TestACommitReadsABoundedPartOfWhatJobsHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.jobs()
	script := fmt.Sprintf(`{"script": %q, "script_type": "python"}`, strings.Repeat("x", 256<<10))
	p.Jobs = []byte("[" + strings.Repeat(script+",", 7) + script + "]")
	ids := w.post(p, p, p)
	for i, want := range []int{2, 1, 0} {
		if n, err := w.S.Messages.Route(w.Ctx); err != nil || n != want {
			t.Errorf("commit %d routes %d messages, want %d: %v", i+1, n, want, err)
		}
	}
	for _, id := range ids {
		if got := w.stands(id); got != string(message.Acknowledged) {
			t.Error(got)
		}
	}
	small := w.jobs(1)
	for range 6 {
		small.Jobs = []byte(strings.ReplaceAll(string(small.Jobs), `"ref": 1, `, ""))
		ids = append(ids, w.post(small)...)
	}
	w.route()
	for _, id := range ids[3:] {
		w.end(id, 1)
		w.Exec(`UPDATE postern.job SET result = to_jsonb(repeat('x', 1000000)) WHERE message_id = $1`, id)
	}
	w.Same([]string{fmt.Sprint(w.settle(), w.settle(), w.settle())}, "5 1 0")
}
