package peers

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// timed is a secret that is good until a time, the zero value none.
type timed struct {
	secret []byte
	until  *time.Time
}

// at is the secret if it is good at a time, and none otherwise.
func (x timed) at(now time.Time) timed {
	if x.until == nil || !now.Before(*x.until) {
		return timed{}
	}
	return x
}

// longer is the secret, good until a later time, too.
func (x timed) longer(until time.Time) timed {
	if x.until != nil && x.until.Before(until) {
		x.until = &until
	}
	return x
}

// ring are the secrets of a peer: the present one, the one before it, and earlier ones that are still good, the newest
// first. The other end may have any of them.
type ring struct {
	present []byte
	before  timed
	older   []timed
}

// mostOlder is how many of them are kept: each call is signed with all.
const mostOlder = 6

// rotated makes secret the present one, and keeps those before it good for overlap; zero ends them. The same secret
// again, as after an answer that was lost, keeps those before it, and longer. Another one keeps all that are good, too,
// until their times: this end does not know which one the other end was told.
func (r ring) rotated(secret []byte, overlap time.Duration, now time.Time) ring {
	next := ring{present: secret}
	if overlap <= 0 {
		return next
	}
	until := now.Add(overlap)
	again := bytes.Equal(secret, r.present)
	if next.before = r.before.at(now); again {
		next.before = next.before.longer(until)
	} else {
		next.before = timed{r.present, &until}
		next.keep(r.before.at(now))
	}
	for _, x := range r.older {
		if x = x.at(now); again {
			x = x.longer(until)
		}
		next.keep(x)
	}
	return next
}

// keep adds one behind the others, unless it is none, or there already.
func (r *ring) keep(x timed) {
	there := slices.ContainsFunc(r.older, func(o timed) bool { return bytes.Equal(o.secret, x.secret) })
	if x.secret == nil || there || bytes.Equal(x.secret, r.present) || len(r.older) == mostOlder {
		return
	}
	r.older = append(r.older, x)
}

// RotateSecret makes secret the one of a peer, and keeps those before it good as rotated says. Calls are signed with
// all of them meanwhile, and believed under any, so that the two ends need not change at once.
func (s *Store) RotateSecret(ctx context.Context, by db.By, name string, secret []byte, overlap time.Duration) error {
	return s.Run(ctx, func(t *db.Txn) error {
		if err := by.Admin(ctx, t, by.Context); err != nil {
			return err
		}
		missing, err := t.LockVersion(ctx, 0, peerLock, by.Context, name)
		if err != nil {
			return err
		}
		if missing {
			return noPeer(name)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		var id int32
		var r ring
		var now time.Time
		var older [][]byte
		var olderUntil []time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT x.peer_id, x.secret, x.secret_before, x.secret_until, x.secret_older, x.older_until,
				coalesce($3::timestamptz, clock_timestamp())
			FROM postern.peer_secret x
			JOIN postern.peer p USING (peer_id)
			WHERE (p.context_id, p.name) = ($1, $2)
			FOR UPDATE OF x`, by.Context, name, s.LeaseNow()).QueryRow(func(row pgx.Row) error {
			return row.Scan(&id, &r.present, &r.before.secret, &r.before.until, &older, &olderUntil, &now)
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		for n, one := range older {
			r.older = append(r.older, timed{one, &olderUntil[n]})
		}
		r, older, olderUntil = r.rotated(secret, overlap, now), [][]byte{}, []time.Time{}
		for _, x := range r.older {
			older, olderUntil = append(older, x.secret), append(olderUntil, *x.until)
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.peer_secret
			SET secret = $2, secret_before = $3, secret_until = $4, secret_older = $5, older_until = $6
			WHERE peer_id = $1`, id, r.present, r.before.secret, r.before.until, older, olderUntil)
		b.Queue(`UPDATE postern.peer SET version = version + 1 WHERE peer_id = $1`, id)
		s.AuditIn(b, by, "rotate_secret", "/peers/"+name)
		return t.Commit(ctx, b)
	})
}
