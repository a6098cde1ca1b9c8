package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
)

// eventSample is a request on the devnet, and how its event must end.
type eventSample struct {
	note, tool, input string
	status, code      string
	retried           int
}

var eventSamples = []eventSample{
	{"a tool in Go", "dev.postern.add@1", `{"a": 2, "b": 3}`, "Successful", "", 0},
	{"the same tool again", "dev.postern.add@1", `{"a": 20, "b": 30}`, "Successful", "", 0},
	{"fails at the first call: it is called again", "dev.postern.flaky@1", `{"a": 1, "b": 1}`, "Successful", "", 1},
	{"likewise", "dev.postern.flaky@1", `{"a": 7, "b": -7}`, "Successful", "", 1},
	{"a tool that is a plain script", "dev.script.shout@1", `{"text": "postern"}`, "Successful", "", 0},
	{"the same script again", "dev.script.shout@1", `{"text": "ready"}`, "Successful", "", 0},
	{"an answer in numbers", "dev.script.divide@1", `{"a": 10, "b": 4}`, "Successful", "", 0},
	{"an answer that tells of an error: the call did well", "dev.script.divide@1", `{"a": 1, "b": 0}`, "Successful", "", 0},
	{"its answer breaks its schema", "dev.script.broken@1", `{"text": "x"}`, "Dead", "schema_mismatch", 0},
	{"its input breaks its schema: the tool is not called", "dev.postern.add@1", `{"a": "two"}`, "Dead", "schema_mismatch", 0},
	{"a tool that is not registered", "dev.nobody.knows@1", `{}`, "Dead", "unknown_tool", 0},
}

// event is what the demo reads of an event.
type event struct {
	ID        string    `json:"id"`
	Tool      string    `json:"tool"`
	Status    string    `json:"status"`
	Outcome   string    `json:"outcome"`
	Retried   int       `json:"retried"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Error     *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	JSON struct {
		Args struct{ Sample int } `json:"args"`
	} `json:"json"`
}

type eventRun struct {
	run
	source string
	events []event
}

// RunLeader is Run for the leader: it registers the tools of two processes, has requests written to the devnet, from
// whose log they come in as events, watches until all have ended, and compares the results on the devnet with them.
// The Summary counts events; done are those that were successful.
func RunLeader(ctx context.Context, c Config) (*Summary, error) {
	if c.Out == nil {
		c.Out = io.Discard
	}
	r := &eventRun{run: run{Config: c, client: &client{base: c.API, http: &http.Client{Timeout: 30 * time.Second}}, began: time.Now()}, source: "walks-" + c.Name}
	r.ledger = devnet.NewClient(c.Ledger, 10*time.Second)
	defer r.client.http.CloseIdleConnections()
	defer r.ledger.Close()
	if err := r.setup(ctx); err != nil {
		return nil, err
	}
	if err := r.request(ctx); err != nil {
		return nil, err
	}
	if err := r.watch(ctx); err != nil {
		return nil, err
	}
	return r.sum(ctx)
}

// leaderCaps are the channels of the demo.
var leaderCaps = []string{"cap-1", "cap-2", "cap-3"}

func (r *eventRun) setup(ctx context.Context) error {
	for typ, pool := range map[string]string{"REQUEST": Pool, "leader.result": "leader"} {
		d := dispatcher(typ, r.Worker)
		d.Pool, d.Inclusion.Confirmations = pool, 1
		if typ == "leader.result" { // its events tell the end themselves
			d.Unknown = outbox.UnknownUnresolved
		}
		if err := r.client.do(ctx, http.MethodPut, "/dispatchers/"+typ, d, nil); err != nil {
			return fmt.Errorf("set up the dispatcher of %s: %w", typ, err)
		}
	}
	if err := r.client.do(ctx, http.MethodPut, "/senders/"+Accounts[0], map[string]any{"pool": Pool}, nil); err != nil {
		return err
	}
	for _, cap := range leaderCaps {
		if err := r.client.do(ctx, http.MethodPut, "/channels/"+cap, map[string]any{"kind": "cap", "cap": "0x" + cap}, nil); err != nil {
			return fmt.Errorf("set up the channel %s: %w", cap, err)
		}
	}
	for _, fqn := range []string{"dev.postern.add@1", "dev.postern.flaky@1", "dev.script.shout@1", "dev.script.divide@1", "dev.script.broken@1"} {
		parts := strings.Split(strings.TrimSuffix(fqn, "@1"), ".")
		at, key := r.Tools[0], r.Key
		if parts[1] == "script" {
			at, key = r.Tools[1], "" // the script verifies no signature: Python has no ed25519 of its own
		}
		var tool struct {
			Key string `json:"public_key"`
		}
		if err := r.client.do(ctx, http.MethodPut, "/tools/"+fqn, map[string]any{"url": at + "/" + parts[2]}, &tool); err != nil {
			return fmt.Errorf("register the tool %s: %w", fqn, err)
		}
		if tool.Key != key {
			return fmt.Errorf("the calls of the tool %s are signed by the key %q, and it knows %q", fqn, tool.Key, key)
		}
	}
	source := map[string]any{"kind": "devnet", "url": r.Ledger, "filter": map[string]string{"type": "request", "to": r.source}, "poll_every": "200ms",
		"map": map[string]string{"fqn": "/args/tool", "input": "/args/input"}}
	return r.client.do(ctx, http.MethodPut, "/sources/"+r.source, source, nil)
}

// request has the samples written to the devnet, all in one transaction.
func (r *eventRun) request(ctx context.Context) error {
	calls := make([]map[string]any, len(eventSamples))
	for i, s := range eventSamples {
		calls[i] = map[string]any{"to": r.source, "method": "request", "args": map[string]any{"tool": s.tool, "input": json.RawMessage(s.input), "sample": i}}
	}
	return r.client.do(ctx, http.MethodPost, "/transactions", map[string]any{"queue": r.source, "type": "REQUEST", "uid": r.source, "data": map[string]any{"calls": calls}}, nil)
}

func (r *eventRun) watch(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := time.Now(); ; {
		list, err := all[event](ctx, r.client, "/events", url.Values{"source": {r.source}})
		if err != nil {
			return err
		}
		ended := 0
		for _, e := range list {
			if e.Status == "Successful" || e.Status == "Dead" {
				ended++
			}
		}
		if r.events = list; ended == len(eventSamples) || time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(r.Out, "%4.1f s  %d events have come from the devnet, %d of %d have ended\n", time.Since(r.began).Seconds(), len(list), ended, len(eventSamples))
		}
		if ended == len(eventSamples) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sum compares every end with what its sample wants, and with the results on the devnet.
func (r *eventRun) sum(ctx context.Context) (*Summary, error) {
	s := &Summary{
		kind:         ofEvents,
		Run:          r.Name,
		Transactions: len(r.events),
		Queues:       1,
		Senders:      len(leaderCaps),
		States:       []StateTime{},
		Failures:     []Failure{},
		Differing:    []Difference{},
		Ledger:       &Ledger{Balanced: true},
	}
	told, err := r.results(ctx)
	if err != nil {
		return nil, fmt.Errorf("read back from the devnet: %w", err)
	}
	stays := map[outbox.State][]time.Duration{}
	var first, last time.Time
	for _, e := range r.events {
		if err := r.client.do(ctx, http.MethodGet, "/events/"+e.ID, nil, &e); err != nil {
			return nil, err
		}
		s.addEvent(e, told[e.ID])
		if s.Retries += e.Retried; s.Example == "" || e.Retried > 0 {
			s.Example = "events/" + e.ID
		}
		if first.IsZero() || e.CreatedAt.Before(first) {
			first = e.CreatedAt
		}
		if e.UpdatedAt.After(last) {
			last = e.UpdatedAt
		}
		if err := r.history(ctx, e.ID, stays); err != nil {
			return nil, err
		}
	}
	s.timed(first, last)
	s.stayed([]outbox.State{"Queued", "Active"}, stays)
	h, err := r.ledger.Health(ctx)
	if err != nil {
		return nil, fmt.Errorf("read back from the devnet: %w", err)
	}
	s.Ledger.Apps, s.Ledger.Height, s.Ledger.Reorgs, s.Ledger.Fees = 1, h.Height, h.Reorgs, fmt.Sprint(h.Sink)
	return s, nil
}

// addEvent counts one event that has ended, and compares it with its sample. told are its results on the devnet.
func (s *Summary) addEvent(e event, told []string) {
	want := eventSamples[e.JSON.Args.Sample]
	differ := func(format string, args ...any) {
		s.Unexpected++
		s.Differing = append(s.Differing, Difference{want.tool + " " + want.input, fmt.Sprintf(format, args...)})
	}
	code := ""
	if e.Error != nil {
		code = e.Error.Code
	}
	if e.Status == "Successful" {
		s.Done++
		code = ""
	} else {
		s.Failed++
		s.Failures = append(s.Failures, Failure{UID: e.Tool, State: outbox.State(e.Status), Code: code, Message: e.Error.Message, Note: want.note})
	}
	if e.Status != want.status || code != want.code || e.Retried != want.retried {
		differ("ended %s %s after %d retries, want %s %s after %d", e.Status, code, e.Retried, want.status, want.code, want.retried)
	}
	if n := len(told); n != 1 || told[0] != e.Outcome {
		differ("the devnet has the results %v of it, want one, %s", told, e.Outcome)
		s.Ledger.Balanced = false
	}
	s.Ledger.Calls += len(told)
}

// history adds how long an event was in each state.
func (r *eventRun) history(ctx context.Context, id string, stays map[outbox.State][]time.Duration) error {
	var h page[struct {
		At       time.Time
		From, To outbox.State
	}]
	if err := r.client.do(ctx, http.MethodGet, "/events/"+id+"/history", nil, &h); err != nil {
		return err
	}
	for i := 1; i < len(h.Items); i++ {
		stays[h.Items[i].From] = append(stays[h.Items[i].From], h.Items[i].At.Sub(h.Items[i-1].At))
	}
	return nil
}

// results are the outcomes that the devnet was told, by event. The devnet shows final events only, a little later.
func (r *eventRun) results(ctx context.Context) (told map[string][]string, err error) {
	for deadline := time.Now().Add(20 * BlockEvery); ; {
		told = map[string][]string{}
		mine, n := map[string]bool{}, 0
		for _, e := range r.events {
			mine[e.ID] = true
		}
		seen := map[string]bool{}
		for cursor, more := "", true; more; {
			page, err := r.ledger.Events(ctx, cursor, 1000)
			if err != nil {
				return nil, err
			}
			for _, e := range page.Events {
				var result struct{ Event, Outcome string }
				if e.Type == "leader.result" && !seen[e.ID] && json.Unmarshal(e.Args, &result) == nil && mine[result.Event] {
					told[result.Event] = append(told[result.Event], result.Outcome)
					n++
				}
				seen[e.ID] = true
			}
			cursor, more = page.NextCursor, page.HasMore
		}
		if n >= len(r.events) || time.Now().After(deadline) {
			return told, nil
		}
		select {
		case <-time.After(BlockEvery / 2):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
