package events_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// define is a tool that takes {"a": integer} and has the variant ok.
func define(t *testing.T, change func(*leader.Meta)) *leader.Definition {
	t.Helper()
	m := leader.Meta{FQN: "xyz.labs.add@1", URL: "http://127.0.0.1:1", InputSchema: json.RawMessage(`{"properties": {"a": {"type": "integer"}}}`),
		OutputSchema: json.RawMessage(`{"oneOf": [{"required": ["ok"]}]}`)}
	if change != nil {
		change(&m)
	}
	d, err := m.Definition()
	pgworld.OK(t, err)
	return d
}

func (w *world) tool(change func(*leader.Meta), set events.ToolSettings) *events.Tool {
	w.T.Helper()
	d := define(w.T, change)
	if set.TTL == 0 {
		set.TTL = leader.DefaultTTL
	}
	_, err := w.S.Events.PutTool(w.Ctx, w.By, d, set, 0)
	w.Must(err)
	v, err := w.S.Events.Tool(w.Ctx, w.By.Context, d.FQN.String())
	w.Must(err)
	return v
}

func TestAToolIsFoundAsItIsRegisteredNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.tool(nil, events.ToolSettings{})
	if err := v.ValidateInput([]byte(`{"a": "x"}`)); err == nil {
		t.Error("a string is an integer")
	}
	again, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN)
	if w.Must(err); again.Definition != v.Definition {
		t.Error("it is compiled twice")
	}
	other := w.Another(2)
	_, err = other.Events.PutTool(w.Ctx, w.By, define(t, func(m *leader.Meta) { m.InputSchema = json.RawMessage(`{"properties": {"a": {"type": "string"}}}`) }),
		events.ToolSettings{TTL: time.Minute}, v.Version)
	w.Must(err)
	if now, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN); err != nil || now.ValidateInput([]byte(`{"a": "x"}`)) != nil || now.ValidateInput([]byte(`{"a": 1}`)) == nil {
		t.Errorf("what another process has changed is not seen: %v", err)
	}
	if _, err := w.S.Events.PutTool(w.Ctx, w.By, define(t, nil), events.ToolSettings{TTL: time.Minute}, v.Version); fault.CodeOf(err) != "precondition_failed" {
		t.Errorf("an old version is replaced: %v", err)
	}

	shared := w.By
	shared.Context = w.S.Context(pg.System).ID
	_, err = w.S.Events.PutTool(w.Ctx, shared, define(t, func(m *leader.Meta) { m.URL = "http://shared" }), events.ToolSettings{TTL: time.Minute}, 0)
	w.Must(err)
	_, err = w.S.Events.PutTool(w.Ctx, shared, define(t, func(m *leader.Meta) { m.FQN, m.URL = "xyz.labs.sub@1", "http://shared" }), events.ToolSettings{TTL: time.Minute}, 0)
	w.Must(err)
	seen := func() string {
		list, err := w.S.Events.Tools(w.Ctx, w.ID, "", 10)
		w.Must(err)
		var names []string
		for _, v := range list {
			one, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN)
			if w.Must(err); one.URL != v.URL {
				t.Errorf("%s is listed at %s, and found at %s", v.FQN, v.URL, one.URL)
			}
			names = append(names, v.FQN+" "+v.URL)
		}
		return strings.Join(names, ", ")
	}
	if s := seen(); s != "xyz.labs.add@1 http://127.0.0.1:1, xyz.labs.sub@1 http://shared" {
		t.Error(s)
	}
	w.Must(w.S.Events.RemoveTool(w.Ctx, w.By, v.FQN))
	if s := seen(); s != "xyz.labs.add@1 http://shared, xyz.labs.sub@1 http://shared" {
		t.Error(s)
	}
	if err := w.S.Events.RemoveTool(w.Ctx, w.By, v.FQN); fault.KindOf(err) != fault.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	w.Must(w.S.Events.RemoveTool(w.Ctx, shared, v.FQN))
	if _, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a removed tool: %v", err)
	}
	if created, err := w.S.Events.PutTool(w.Ctx, w.By, define(t, nil), events.ToolSettings{TTL: time.Minute}, -1); err != nil || !created {
		t.Errorf("a removed tool is created again: %v %v", created, err)
	}

	rows, _, err := w.S.Audit(w.Ctx, w.ID, db.AuditFilter{Object: "/tools/" + v.FQN, Limit: 9})
	w.Must(err)
	var did []string
	for _, r := range rows {
		did = append(did, fmt.Sprintf("%s %s %s %v %v", r.Action, r.Actor, r.Reason, r.Before != nil, strings.Contains(string(r.After), "sha256:")))
	}
	if s := strings.Join(did, ", "); s != "put test because false true, delete test because true false, put test because true true, put test because false true" {
		t.Error(s)
	}
}

func (w *world) toolsDue() string {
	w.T.Helper()
	list, err := w.S.Events.ToolsDue(w.Ctx, 10)
	w.Must(err)
	var names []string
	for _, v := range list {
		names = append(names, fmt.Sprintf("%s check=%v refresh=%v", v.FQN, v.Check, v.Refresh))
	}
	return strings.Join(names, ", ")
}

func TestAToolIsProbedAndReadAgainInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tool(func(m *leader.Meta) { m.FQN = "xyz.labs.quiet@1" }, events.ToolSettings{})
	v := w.tool(nil, events.ToolSettings{TTL: 5 * time.Minute, CheckEvery: time.Minute, Discovered: true})
	tx := w.Begin(w.S.Pool()) // a tool whose row another one holds is left alone
	_, err := tx.Exec(w.Ctx, `SELECT FROM postern.tool WHERE tool_id = $1 FOR UPDATE`, v.ID)
	w.Must(err)
	if s := w.toolsDue(); s != "" {
		t.Error(s)
	}
	w.Must(tx.Rollback(w.Ctx))
	if s := w.toolsDue(); s != "xyz.labs.add@1 check=true refresh=false" {
		t.Error(s)
	}
	if s := w.toolsDue(); s != "" {
		t.Error(s)
	}
	for i, c := range []struct {
		why     string
		changed bool
	}{{"", true}, {"", false}, {"the tool answered HTTP 503", true}, {"timeout", false}} {
		if changed, err := w.S.Events.ToolChecked(w.Ctx, v, c.why); err != nil || changed != c.changed {
			t.Errorf("probe %d: %v %v", i, changed, err)
		}
		w.Later(time.Second)
	}
	now, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN)
	if w.Must(err); now.Health != "failing" || now.Failures != 2 || now.HealthWhy != "timeout" || !now.HealthSince.Equal(w.Now.Add(-2*time.Second)) || !now.CheckedAt.Equal(w.Now.Add(-time.Second)) {
		t.Errorf("%+v", now)
	}
	w.Later(time.Minute)
	if s := w.toolsDue(); s != "xyz.labs.add@1 check=true refresh=false" {
		t.Error(s)
	}
	w.Later(5 * time.Minute)
	if s := w.toolsDue(); s != "xyz.labs.add@1 check=true refresh=true" {
		t.Error(s)
	}
	if changed, err := w.S.Events.ToolRefreshed(w.Ctx, w.By, v, nil, "it is no JSON"); err != nil || changed {
		t.Error(changed, err)
	}
	if now, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN); err != nil || now.RefreshWhy != "it is no JSON" || now.Version != v.Version || now.RefreshAt.Sub(w.Now) > time.Minute {
		t.Errorf("%+v %v", now, err)
	}
	if changed, err := w.S.Events.ToolRefreshed(w.Ctx, w.By, v, v.Definition, ""); err != nil || changed {
		t.Error("the same definition is a change", err)
	}
	next := define(t, func(m *leader.Meta) { m.Description = "adds" })
	if changed, err := w.S.Events.ToolRefreshed(w.Ctx, w.By, v, next, ""); err != nil || !changed {
		t.Error(changed, err)
	}
	if changed, err := w.S.Events.ToolRefreshed(w.Ctx, w.By, v, v.Definition, ""); err != nil || changed {
		t.Error("an older look counts", err)
	}
	if changed, err := w.S.Events.ToolChecked(w.Ctx, v, ""); err != nil || changed {
		t.Error("an older probe counts", err)
	}
	now, err = w.S.Events.Tool(w.Ctx, w.ID, v.FQN)
	if w.Must(err); now.Version != v.Version+1 || now.Description != "adds" || now.RefreshWhy != "" || !now.RefreshAt.Equal(w.Now.Add(5*time.Minute)) || now.Health != "failing" {
		t.Errorf("%+v", now)
	}
	w.Must(w.S.Events.SuspectTool(w.Ctx, now))
	if s := w.toolsDue(); s != "xyz.labs.add@1 check=true refresh=true" {
		t.Error(s)
	}
	moved := w.tool(func(m *leader.Meta) { m.URL = "http://127.0.0.1:2" }, events.ToolSettings{CheckEvery: time.Minute})
	if moved.Health != "unknown" || moved.HealthWhy != "" || moved.Failures != 0 || moved.RefreshAt != nil {
		t.Errorf("%+v", moved)
	}
	w.Must(w.S.Events.RemoveTool(w.Ctx, w.By, v.FQN))
	w.Later(time.Hour)
	if s := w.toolsDue(); s != "" {
		t.Errorf("a removed tool is due: %s", s)
	}
}

// The /meta of a tool, or a probe, that was read before the tool was registered anew changes nothing, whichever of the
// two commits first.
func TestALookBesideARegistrationChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.tool(nil, events.ToolSettings{Discovered: true})
	other := w.Another(2)
	stale := define(t, func(m *leader.Meta) { m.Description = "stale" })
	said, waited := w.Beside(func() error {
		_, err := w.S.Events.PutTool(w.Ctx, w.By, define(t, func(m *leader.Meta) { m.Description = "new" }), events.ToolSettings{TTL: time.Minute}, 0)
		return err
	}, func() string {
		changed, err := other.Events.ToolRefreshed(w.Ctx, w.By, v, stale, "")
		return fmt.Sprint(changed, err)
	})
	if now, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN); err != nil || !waited || said != "false <nil>" || now.Description != "new" {
		t.Errorf("%s, waited %v: %+v %v", said, waited, now, err)
	}
	v, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN)
	w.Must(err)
	said, waited = w.Beside(func() error {
		_, err := w.S.Events.ToolRefreshed(w.Ctx, w.By, v, stale, "")
		return err
	}, func() string {
		_, err := other.Events.PutTool(w.Ctx, w.By, define(t, func(m *leader.Meta) { m.Description = "newer" }), events.ToolSettings{TTL: time.Minute}, 0)
		return fmt.Sprint(err)
	})
	if now, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN); err != nil || !waited || said != "<nil>" || now.Description != "newer" || now.Version != v.Version+2 {
		t.Errorf("%s, waited %v: %+v %v", said, waited, now, err)
	}
	v, err = w.S.Events.Tool(w.Ctx, w.ID, v.FQN) // and a probe
	w.Must(err)
	said, waited = w.Beside(func() error {
		_, err := w.S.Events.PutTool(w.Ctx, w.By, define(t, func(m *leader.Meta) { m.URL = "http://127.0.0.1:2" }), events.ToolSettings{TTL: time.Minute}, 0)
		return err
	}, func() string {
		changed, err := other.Events.ToolChecked(w.Ctx, v, "it was away")
		return fmt.Sprint(changed, err)
	})
	if now, err := w.S.Events.Tool(w.Ctx, w.ID, v.FQN); err != nil || !waited || said != "false <nil>" || now.Health != "unknown" {
		t.Errorf("%s, waited %v: %+v %v", said, waited, now, err)
	}
	// two registrations at once: one after the other
	said, waited = w.Beside(func() error {
		_, err := w.S.Events.PutTool(w.Ctx, w.By, define(t, func(m *leader.Meta) { m.FQN = "xyz.labs.new@1" }), events.ToolSettings{TTL: time.Minute}, 0)
		return err
	}, func() string {
		_, err := other.Events.PutTool(w.Ctx, w.By, define(t, func(m *leader.Meta) { m.FQN, m.Description = "xyz.labs.new@1", "second" }), events.ToolSettings{TTL: time.Minute}, 0)
		return fmt.Sprint(err)
	})
	if now, err := w.S.Events.Tool(w.Ctx, w.ID, "xyz.labs.new@1"); err != nil || !waited || said != "<nil>" || now.Description != "second" || now.Version != 2 {
		t.Errorf("%s, waited %v: %+v %v", said, waited, now, err)
	}
}

// Why an event waits for its tool to be called again says whether the tool is ready at all.
func TestWhyAnEventWaitsNamesAToolThatIsNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.tool(nil, events.ToolSettings{CheckEvery: time.Minute})
	w.Source(func(s *leader.Source) { s.Kind, s.URL = "push", "" })
	pushed, err := w.S.Events.PushEvents(w.Ctx, w.By, "log", pageOf("", false, 1).Items, nil)
	w.Must(err)
	_, err = w.S.Pool().Exec(w.Ctx, `UPDATE postern.event SET not_before = $1, retried = 1, error = 'the tool failed (HTTP 503)'`, w.Now.Add(time.Minute))
	w.Must(err)
	why := func() string {
		t.Helper()
		y, err := w.S.Events.WhyEvent(w.Ctx, w.ID, pushed[0].ID)
		w.Must(err)
		return y.Blockers[0].Detail
	}
	if s := why(); s != "its tool failed: the tool failed (HTTP 503)" {
		t.Error(s)
	}
	_, err = w.S.Events.ToolChecked(w.Ctx, v, "the tool did not answer in time")
	w.Must(err)
	if s := why(); !strings.HasSuffix(s, "; it has not been ready since "+w.Now.Format(time.RFC3339)+": the tool did not answer in time") {
		t.Error(s)
	}
}
