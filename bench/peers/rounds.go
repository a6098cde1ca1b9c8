package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The probe before the first round: calls that take a while, so that two of one key at the same time are seen.
var (
	probe     = scenario{name: "probe", kind: fifo, keys: 20, depth: 5}
	probeHold = 5 * time.Millisecond
)

// measure runs a scenario: in every round each system once, beginning with another one each time. A system that
// fails, or does not finish in time, is not asked again; what it did is told, and why.
func (b *comparison) measure(ctx context.Context, c scenario, systems []system, runs int) ([]line, error) {
	var all []*measured
	for _, s := range systems {
		if !slices.Contains(s.runs, c.kind) {
			continue
		}
		m := &measured{system: s, trials: make([]*trial, runs)}
		all = append(all, m)
		if why := s.unfit(c); why != "" {
			m.notes = append(m.notes, why)
		} else if err := b.probe(ctx, m, c); err != nil {
			return nil, err
		}
	}
	for round := range runs {
		for i := range all {
			m := all[(round+i)%len(all)]
			if len(m.notes) > 0 {
				if round > 0 && m.trials[round-1] != nil { // cut short: compared with by what it did
					m.trials[round] = m.trials[round-1]
				}
				continue
			}
			t, err := b.try(ctx, m.system, c, 0)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			b.took(c, round, runs, m, t, err)
		}
	}
	list := lines(c, all)
	if c.kind == fifo && len(systems) == len(systemNames()) {
		for _, a := range absent {
			list = append(list, line{Scenario: c.name, System: a.name, Peer: true, Note: "could not be had: " + a.reason})
		}
	}
	return list, nil
}

// probe sees whether a peer keeps its promise, and whether it can be had at all.
func (b *comparison) probe(ctx context.Context, m *measured, c scenario) error {
	if m.name == ours || c.kind != fifo {
		return nil
	}
	t, err := b.try(ctx, m.system, probe, probeHold)
	var away unavailable
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &away):
		m.notes = append(m.notes, "skipped: "+err.Error())
		b.say("%s: %s", m.name, m.notes[0])
	case err != nil:
		b.took(c, 0, 1, m, nil, fmt.Errorf("the probe: %w", err))
	case t.verdict.violations() > 0 || t.short != "":
		m.violations += t.verdict.violations()
		b.say("%s: the probe saw %d violations: %s %s", m.name, t.verdict.violations(), t.verdict, t.short)
	}
	return nil
}

// took notes a run of a system.
func (b *comparison) took(c scenario, round, runs int, m *measured, t *trial, err error) {
	at := fmt.Sprintf("%s: round %d of %d: %s", c.name, round+1, runs, m.name)
	if err != nil {
		m.notes = append(m.notes, fmt.Sprintf("failed in round %d: %v", round+1, err))
		b.say("%s: %v", at, err)
		return
	}
	m.trials[round] = t
	m.runs++
	bad := t.verdict.violations() + t.wrong
	m.violations += bad
	if bad > 0 {
		b.say("%s: %d violations: %s", at, bad, t.verdict)
	}
	if t.short != "" {
		m.notes = append(m.notes, fmt.Sprintf("%s: %d of %d were done", t.short, t.verdict.ended, c.total()))
	}
	if c.kind == idle {
		b.say("%s: p50 %.2f ms, p99 %.2f ms %s", at, t.p50, t.p99, t.short)
		return
	}
	b.say("%s: %.0f a second %s", at, t.rate, t.short)
}
