package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// trial is one run of one system.
type trial struct {
	rate      float64   // completions a second
	short     string    // how the run was cut short, or ""
	verdict   verdict   // of a peer
	wrong     int       // violations that ours told
	latencies []float64 // milliseconds, of idle-latency
	p50, p99  float64   // of ours, which tells no single ones
}

// try runs a system once in a database of its own. hold is how long each call takes.
func (b *comparison) try(ctx context.Context, s system, c scenario, hold time.Duration) (*trial, error) {
	address, remove, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	if s.name == ours {
		return b.tryOurs(ctx, c, address)
	}
	o := order{Kind: c.kind, Keys: c.keys, Depth: c.depth, HoldMs: int(hold.Milliseconds()), Record: filepath.Join(b.dir, "record"), tuning: s.tune(c)}
	cmd, err := b.command(ctx, s, o)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), "DATABASE_URL="+address)
	p, err := startWorker(cmd)
	if err != nil {
		return nil, err
	}
	defer p.kill()
	return b.watch(ctx, p, s, c, o, address)
}

// command is the worker of a peer.
func (b *comparison) command(ctx context.Context, s system, o order) (*exec.Cmd, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if s.node == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, self, workerCommand, string(text)), nil
	}
	program, err := b.nodeProgram(ctx)
	if err != nil {
		return nil, unavailable{err}
	}
	return exec.CommandContext(ctx, program, filepath.Join("node", s.node), string(text)), nil
}

// unavailable is a system that cannot be had on this machine.
type unavailable struct{ error }

// watch lets a worker go and measures from then until nothing is undone in its tables. It begins to look only
// when the last call has ended, so that looking takes nothing from what is measured.
func (b *comparison) watch(ctx context.Context, p *process, s system, c scenario, o order, address string) (*trial, error) {
	if _, err := p.await(ctx, "loaded", 10*time.Minute); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := calm(ctx, conn); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.goOn(); err != nil {
		return nil, err
	}
	t := &trial{}
	heard, err := p.await(ctx, "handled", b.limit)
	took := time.Since(began)
	switch {
	case errors.Is(err, errLate):
		t.short = fmt.Sprintf("did not finish within %s", b.limit)
	case err != nil:
		return nil, err
	default:
		t.p50, t.p99 = quantile(heard.Latencies, 0.5), quantile(heard.Latencies, 0.99)
		if took, err = recorded(ctx, conn, s.undone, began); err != nil {
			return nil, err
		}
	}
	if err := p.stop(ctx); err != nil {
		return nil, err
	}
	events, err := readRecord(o.Record)
	if err != nil {
		return nil, err
	}
	t.verdict = check(events, c.keys, c.depth, t.short == "")
	if !s.fifo || c.kind != fifo { // it promised no order: only what is lost or doubled counts
		t.verdict.swapped, t.verdict.together = 0, 0
	}
	t.rate = float64(t.verdict.ended) / took.Seconds()
	return t, nil
}

// recorded waits until nothing is undone, and returns how long that took since began.
func recorded(ctx context.Context, conn *pgx.Conn, undone string, began time.Time) (time.Duration, error) {
	for end := time.Now().Add(time.Minute); ; {
		var left bool
		if err := conn.QueryRow(ctx, undone).Scan(&left); err != nil {
			return 0, err
		}
		if took := time.Since(began); !left {
			return took, nil
		}
		if time.Now().After(end) {
			return 0, errors.New("every call ended, and a minute later completions are still not recorded")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tryOurs runs postern bench once, which measures and checks by itself: from letting a waiting process go to
// the last outcome in the table.
func (b *comparison) tryOurs(ctx context.Context, c scenario, address string) (*trial, error) {
	binary, err := b.posternBinary(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Minute+b.limit) // loading is a part of it
	defer stop()
	cmd := exec.CommandContext(ctx, binary, append([]string{"bench", "--runs", "1", "-o", "json"}, c.ours()...)...)
	said := &tail{}
	cmd.Env, cmd.Stderr = append(os.Environ(), "DATABASE_URL="+address), said
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		return nil, fmt.Errorf("%w: %s", err, lastLine(said.String()))
	}
	r, err := ourLine(out, c.line())
	if err != nil {
		return nil, err
	}
	return &trial{rate: r.Rate, wrong: r.Violations, p50: r.P50, p99: r.P99}, nil
}

// ourResult is what is read of a line of postern bench.
type ourResult struct {
	Scenario   string  `json:"scenario"`
	Rate       float64 `json:"rate"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Violations int     `json:"violations"`
}

// ourLine finds the line of a scenario: some have others beside it.
func ourLine(out []byte, name string) (r ourResult, err error) {
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		r = ourResult{}
		if err := d.Decode(&r); err != nil {
			return r, fmt.Errorf("postern bench said %.200q, and nothing of %s: %w", out, name, err)
		}
		if r.Scenario == name {
			return r, nil
		}
	}
}

// ours are the arguments of postern bench for a scenario.
func (c scenario) ours() []string {
	switch c.kind {
	case e2e:
		return []string{e2e, "--queues", fmt.Sprint(c.keys), "--depth", fmt.Sprint(c.depth), "--connections", fmt.Sprint(clients)}
	case idle:
		return []string{idle, "--samples", "30"}
	}
	return []string{c.name}
}

// line is the one of theirs that counts: of latencies that of one process, which the peers are as well.
func (c scenario) line() string {
	switch c.kind {
	case e2e:
		return e2e
	case idle:
		return "idle-latency-one-process"
	}
	return c.name
}
