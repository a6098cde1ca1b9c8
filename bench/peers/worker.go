package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// order is what a worker is asked to do, as JSON in its last argument. The conversation then goes in lines:
//
//	worker: {"event": "loaded"}   tables are made and filled; it is connected, and does nothing
//	driver: go                    it begins to work, or in e2e and idle-latency to insert
//	worker: {"event": "handled"}  as many calls ended as there are rows
//	driver: closes the pipe       it writes its record and ends, also if it has not handled everything
//	worker: {"event": "stopped"}
type order struct {
	Kind   string `json:"kind"`
	Keys   int    `json:"keys"`
	Depth  int    `json:"depth"`
	HoldMs int    `json:"hold_ms"` // how long a call takes
	Record string `json:"record"`  // file
	tuning
}

// said is a line of a worker. Latencies are milliseconds, of idle-latency alone.
type said struct {
	Event     string    `json:"event"`
	Latencies []float64 `json:"latencies,omitempty"`
}

// process is a worker that runs.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan said // closed when it says no more
	failed error     // how it ended, once lines is closed
}

func startWorker(cmd *exec.Cmd) (*process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	tail := &tail{}
	cmd.Stderr = tail
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, lines: make(chan said, 4)}
	go func() {
		defer close(p.lines)
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			var s said
			if json.Unmarshal(in.Bytes(), &s) == nil && s.Event != "" {
				p.lines <- s
				continue
			}
			tail.Write(append(in.Bytes(), '\n'))
		}
		if err := cmd.Wait(); err != nil {
			p.failed = fmt.Errorf("%w: %s", err, tail)
		}
	}()
	return p, nil
}

var errLate = errors.New("the time was up")

// await waits until the worker says an event. Faults: errLate, or how the worker ended instead.
func (p *process) await(ctx context.Context, event string, limit time.Duration) (said, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case s, ok := <-p.lines:
			if !ok {
				return said{}, fmt.Errorf("the worker ended before it was %s: %w", event, errors.Join(p.failed, errEnded))
			}
			if s.Event == event {
				return s, nil
			}
		case <-late.C:
			return said{}, fmt.Errorf("waiting until the worker has %s: %w", event, errLate)
		case <-ctx.Done():
			return said{}, ctx.Err()
		}
	}
}

var errEnded = errors.New("it is gone")

func (p *process) goOn() error {
	_, err := io.WriteString(p.stdin, "go\n")
	return err
}

// stop asks the worker to write its record and end.
func (p *process) stop(ctx context.Context) error {
	p.stdin.Close()
	_, err := p.await(ctx, "stopped", time.Minute)
	p.kill()
	return err
}

// kill ends it now, and waits until it has.
func (p *process) kill() {
	p.stdin.Close()
	p.cmd.Process.Kill()
	for range p.lines {
	}
}

// tail keeps the end of what a process says to nobody.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - 2000; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.text) }

// speaker is the worker's side of the conversation.
type speaker struct{ out *json.Encoder }

func newSpeaker() speaker { return speaker{json.NewEncoder(os.Stdout)} }

func (s speaker) say(line said) { s.out.Encode(line) }

// listen calls begin at "go" and returns when the driver has closed the pipe.
func listen(in io.Reader, begin func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "go" {
			begin()
		}
	}
}
