package db

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/safe"
)

// sighting is what a server says of itself. A cluster's servers have its number; one that is promoted begins a
// timeline whose number is higher than all before it, so that a lower one has not seen what was committed on it.
type sighting struct {
	host     string
	system   int64
	started  string // its process; two addresses with the same one lead to the same server
	timeline int64  // of a standby: that of its control file, and the true one is not lower
	standby  bool
}

// sightingSQL may be asked by any role, of a standby as well. The timeline is that of what is written now: the control
// file's is the old one until the checkpoint behind a promotion has ended.
const sightingSQL = `SELECT system_identifier, pg_postmaster_start_time(), pg_is_in_recovery(),
		CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())::bigint
			ELSE ('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint END
	FROM pg_control_system()`

func sightingOf(c *pgconn.PgConn, r *pgconn.Result) (s sighting, err error) {
	if r.Err != nil || len(r.Rows) != 1 {
		return s, fmt.Errorf("who the server is: %w", r.Err)
	}
	row := r.Rows[0]
	s.host, s.started, s.standby = c.Conn().RemoteAddr().String(), string(row[1]), string(row[2]) == "t"
	if s.system, err = strconv.ParseInt(string(row[0]), 10, 64); err == nil {
		s.timeline, err = strconv.ParseInt(string(row[3]), 10, 64)
	}
	return s, err
}

// plainSightingSQL is for a server that refuses the other one: its hosts are told apart by their start alone.
const plainSightingSQL = `SELECT 0, pg_postmaster_start_time(), pg_is_in_recovery(), 0`

// is says whether two addresses led to the same server.
func (s sighting) is(o sighting) bool { return s.system == o.system && s.started == o.started }

// survey is what the hosts of a URL answered when they were all asked.
type survey struct {
	seen   []sighting
	silent int // that did not answer
}

// judge says why a server must not be written to, nil if it may be. before is the server that was last admitted, zero
// at the start of a process; others are all hosts of the URL, if it names several.
//
// A standby takes no writes. A server behind another one's timeline is an old primary that has come back. One behind
// the timeline that was seen before is, too, as long as a host is silent, which may be the right one; where none is,
// or there is but one, the witnesses decide. Two servers that take writes at the start, or later with the same
// timeline, cannot be told apart.
func judge(here, before sighting, others survey) error {
	if here.standby {
		return unfit(here, "is a standby and takes no writes")
	}
	for _, o := range others.seen {
		switch {
		case o.is(here):
		case !o.standby && (before.started == "" || o.timeline == here.timeline):
			return twoPrimaries(here, o)
		case o.system == here.system && o.timeline > here.timeline:
			return unfit(here, "is an old primary: it is on timeline %d, and %s on %d", here.timeline, o.host, o.timeline)
		}
	}
	if here.system == before.system && here.timeline < before.timeline && others.silent > 0 {
		return unfit(here, "is on timeline %d, and this process has seen %d: it is an old primary, unless that was lost; "+
			"with the other hosts of DATABASE_URL reachable this is decided",
			here.timeline, before.timeline)
	}
	return nil
}

// twoPrimaries says that two servers take writes, and which of them a promotion has left behind, where that can be
// told.
func twoPrimaries(a, b sighting) error {
	old := "nothing tells here which of them is the right one"
	if a.timeline > b.timeline {
		a, b = b, a
	}
	if a.system == b.system && a.timeline < b.timeline {
		old = fmt.Sprintf("%s is the old primary, if %s was promoted after it", a.host, b.host)
	}
	return fault.New(fault.Retry, "two_primaries", "two servers take writes, %s (timeline %d) and %s (timeline %d): %s. "+
		"Fence off the wrong one: stop it, and keep it from starting as a primary",
		a.host, a.timeline, b.host, b.timeline, old)
}

// OnePrimary asks all hosts of a URL, if it names several. Fault two_primaries: two of those that answer take writes.
func OnePrimary(ctx context.Context, url string) error {
	said, err := session.Parse(url)
	if err != nil {
		return err
	}
	w := NewWitness()
	w.hosts = hostsOf(&said.ConnConfig.Config)
	return one(w.others(ctx))
}

// one is the fault two_primaries where two servers of the survey take writes.
func one(of survey) error {
	var first *sighting
	for _, s := range of.seen {
		switch {
		case s.standby:
		case first == nil:
			first = &s
		case !s.is(*first):
			return twoPrimaries(*first, s)
		}
	}
	return nil
}

func unfit(s sighting, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	return fault.New(fault.Retry, "database_unavailable", "the server %s %s", s.host, why).After(time.Second)
}

// askedFor is how long the answers of all hosts count, askWithin how long they may take: where one does not answer, the
// connections that are opened wait for it.
const askedFor, askWithin = 2 * time.Second, time.Second

// others asks all hosts of the URL, if it names several, unless that was done a moment ago.
func (w *Witness) others(ctx context.Context) survey {
	w.mu.Lock()
	hosts := w.hosts
	w.mu.Unlock()
	if len(hosts) == 0 {
		return survey{}
	}
	w.asking.Lock()
	defer w.asking.Unlock()
	if !w.asked.IsZero() && time.Since(w.asked) < askedFor {
		return w.told
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	seen := make([]*sighting, len(hosts))
	var asked sync.WaitGroup
	for i, h := range hosts {
		asked.Go(safe.Func("ask a host", func() { seen[i] = visit(ctx, h) })) // one that panicked is silent
	}
	asked.Wait()
	w.told = survey{}
	for _, s := range seen {
		if s == nil {
			w.told.silent++
		} else {
			w.told.seen = append(w.told.seen, *s)
		}
	}
	w.asked = time.Now()
	return w.told
}

// visit asks one host who it is; nil if it does not answer.
func visit(ctx context.Context, host *pgconn.Config) *sighting {
	c, err := pgconn.ConnectConfig(ctx, host)
	if err != nil {
		return nil
	}
	defer c.Close(ctx)
	here, _, err := inspect(ctx, c, nil)
	if err != nil {
		return nil
	}
	return &here
}

// hostsOf are the hosts of a URL, each as a configuration of its own, or none if there is but one. With sslmode=prefer
// a host stands there twice, with TLS and without.
func hostsOf(cfg *pgconn.Config) (hosts []*pgconn.Config) {
	all := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	at := map[string]*pgconn.Config{}
	for _, f := range all {
		name := f.Host + ":" + strconv.Itoa(int(f.Port))
		if !strings.HasPrefix(f.Host, "/") {
			name = net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		}
		if h := at[name]; h != nil {
			h.Fallbacks = append(h.Fallbacks, f)
			continue
		}
		h := cfg.Copy()
		h.Host, h.Port, h.TLSConfig = f.Host, f.Port, f.TLSConfig
		h.Fallbacks, h.ValidateConnect, h.AfterConnect = nil, nil, nil
		at[name] = h
		hosts = append(hosts, h)
	}
	if len(hosts) < 2 {
		return nil
	}
	return hosts
}
