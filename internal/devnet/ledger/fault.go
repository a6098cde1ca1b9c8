package ledger

import (
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// Faults returns what goes wrong on purpose.
func (l *Ledger) Faults() devnet.Faults {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
}

// SetFaults says what goes wrong from now on, until the process ends. An error is a *devnet.Refusal.
func (l *Ledger) SetFaults(f devnet.Faults) error {
	if err := check(f); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults, l.since = f, 0
	return nil
}

// check says what is wrong with faults.
func check(f devnet.Faults) error {
	for name, chance := range map[string]float64{"refuse": f.Refuse, "lose": f.Lose, "wrong": f.Wrong, "drop": f.Drop, "reorg_lose": f.ReorgLose} {
		if !(chance >= 0 && chance <= 1) {
			return refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "%s is %v: want a chance from 0 to 1", name, chance)
		}
	}
	if d, err := time.ParseDuration(f.Slow); f.Slow != "" && (err != nil || d < 0) {
		return refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "slow is %q: want a duration such as 200ms", f.Slow)
	}
	if f.ReorgEvery < 0 || f.ReorgDepth < 0 || f.ReorgDepth >= devnet.FinalDepth {
		return refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "reorg_every is %d and reorg_depth %d: want 0 or more, and 0 to %d", f.ReorgEvery, f.ReorgDepth, devnet.FinalDepth-1)
	}
	return nil
}

// trouble is what happens to one call.
type trouble struct {
	refuse, lose, wrong bool
	slow                time.Duration
}

// draw draws what happens to a call.
func (l *Ledger) draw() (t trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hit := func(chance float64) bool { return chance > 0 && l.chance.Float64() < chance }
	t.slow, _ = time.ParseDuration(l.faults.Slow)
	t.refuse, t.lose, t.wrong = hit(l.faults.Refuse), hit(l.faults.Lose), hit(l.faults.Wrong)
	return t
}
