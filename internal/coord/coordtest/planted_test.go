package coordtest_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/coord/coordtest"
)

// faults are planted one by one, each in schedules in which it can do harm.
var faults = []struct {
	fault  coord.Fault
	change func(*coordtest.Plan)
	from   uint64 // schedules before it have found nothing
}{
	{coord.PermitNotChecked, nil, 1},
	{coord.TwoPermits, nil, 1},
	{coord.StaleKeyBelieved, late, 1},
	{coord.OutrankByOwnHeight, boundary, 1},
	{coord.ForeignYesBelieved, forged, 1},
	{coord.OldInstallBelieved, restored, 1},
	{coord.GenerationNotCompared, late, 1},
	{coord.OldBeatBelieved, late, 1},
	{coord.NeverAsks, lossy, 1},
	{coord.FailsWhileOthersGo, guarded, 1},
	{coord.TimeoutIsRevert, func(p *coordtest.Plan) { p.Timeouts = true }, 1},
	{coord.ProducersForgotten, nil, 1},
	{coord.RestoreNotNoticed, restored, 1},
	{coord.GapForgotten, restored, 1},
	{coord.StepsUnstarted, restored, 1},
	{coord.RepeatsBelieved, restored, 1},
	{coord.DependentsNotHeld, nil, 1},
	{coord.GoneInputsTaken, nil, 250},
}

func late(p *coordtest.Plan) { p.Late, p.Settings.Mode = 0.4, coord.Endorser }

func lossy(p *coordtest.Plan) {
	p.Loss, p.Restores, p.Timeouts = 0.4, "none", false
}

func quiet(p *coordtest.Plan) {
	p.Quiet, p.Settings.Mode, p.Settings.KeepsActive, p.Restores = true, coord.Endorser, false, "none"
}

// boundary has all begin at once, on both sides of a boundary, on a wire without loss.
func boundary(p *coordtest.Plan) {
	quiet(p)
	perfect(p)
	p.Boundary = true
}

func forged(p *coordtest.Plan) { p.Forger = true }

func restored(p *coordtest.Plan) {
	if p.Restores == "none" {
		p.Restores = "cold"
	}
	p.Settings.Mode = coord.Endorser
}

func guarded(p *coordtest.Plan) { p.Settings.Once = coord.Ledger }

// Each fault breaks a promise within some hundred schedules, and the schedule that finds it breaks none without it.
func TestEachPlantedFaultIsFound(t *testing.T) {
	const most, step = 4000, 8
	if slow {
		t.Skip("with the race detector it takes minutes, and finds nothing more")
	}
	for _, c := range faults {
		t.Run(string(c.fault), func(t *testing.T) {
			for from := c.from; from < c.from+most; from += step {
				for n, all := range play(from, step, c.fault, c.change) {
					plan := coordtest.Draw(n)
					if c.change != nil {
						c.change(&plan)
					}
					if b := coordtest.New(n, plan, "").Run(); len(b) > 0 {
						t.Errorf("%s: without the fault, too: %s", coordtest.Command(n, ""), b[0])
						continue
					}
					t.Logf("found by schedule %d: %s", n, all[0])
					return
				}
			}
			t.Fatalf("%d schedules found nothing", most)
		})
	}
}
