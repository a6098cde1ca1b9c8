package db

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// alone is what a process knows of the setting synchronous_standby_names: that it was empty when it was read last, so
// that commits waited for no standby. The zero alone knows nothing.
type alone struct {
	read    atomic.Pointer[time.Time] // when it began to be read
	doubted atomic.Pointer[time.Time] // when a commit of this process was last in doubt
}

// aloneFor is how long such a reading counts. The configuration is read each second.
const aloneFor = 3 * time.Second

// is says whether commits wait for no standby, as far as it matters to Durable.
//
// The names may have been set since the reading. Then a commit that is visible without being on a standby is one whose
// wait was cancelled. Nothing cancels a wait in so short a time by itself: the statement_timeout takes 30 s. So only
// an operator does harm who sets the names and cancels a wait within aloneFor, and before the next reading; that
// commit is then as safe as all those before it. A process that was told of such a wait, or lost a connection in a
// commit, goes by no reading that began before. One that was frozen, or whose readings fail, has none that counts.
func (a *alone) is() bool {
	read, doubted := a.read.Load(), a.doubted.Load()
	if read == nil || doubted != nil && !read.After(*doubted) {
		return false
	}
	now := time.Now()
	return now.Sub(*read) < aloneFor && now.Round(0).Sub(read.Round(0)) < aloneFor // a monotonic clock may stand still
}

// doubt forgets what was read: a commit was not known to be safe.
func (a *alone) doubt() {
	now := time.Now()
	a.doubted.Store(&now)
}

// ReadStandby adds to b, which is sent now, the reading of whether commits wait for no standby.
func (db *DB) ReadStandby(b *pgx.Batch) {
	began := time.Now()
	b.Queue(`SELECT current_setting('synchronous_standby_names') = ''`).QueryRow(func(row pgx.Row) error {
		var empty bool
		if err := row.Scan(&empty); err != nil {
			return err
		}
		if empty {
			db.alone.read.Store(&began)
		} else {
			db.alone.read.Store(nil)
		}
		return nil
	})
}
