package pgworld

import "time"

const AMonth = 30 * 24 * time.Hour

// Ahead moves the clock d on, and makes the days there, each by itself, as where a month is kept.
func (w *World) Ahead(d time.Duration) {
	w.T.Helper()
	w.Later(d)
	w.Must(w.S.Keep(w.Ctx, AMonth))
	_, err := w.S.EnsureDays(w.Ctx)
	w.Must(err)
}

func (w *World) HeldBy() (held string) {
	w.T.Helper()
	w.Scan(`SELECT DISTINCT held_by FROM report.retention`, &held)
	return held
}

// Retain drops what may go and returns how many days are left before the last thirty.
func (w *World) Retain() (left int) {
	w.T.Helper()
	// the hooks
	_, err := w.S.Pool().Exec(w.Ctx,
		`UPDATE postern.delivery SET state = 'delivered', next_at = NULL WHERE state = 'pending'`)
	w.Must(err)
	_, err = w.S.Retain(w.Ctx, AMonth)
	w.Must(err)
	HoldsTrue(w.T, w.Ctx, w.S.Pool())
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM report.retention WHERE relation = 'task' AND day < $1`,
		w.Now.Add(-AMonth).Truncate(24*time.Hour)).Scan(&left))
	return left
}
