package httpapi_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// others are what batches, sources and events of sources wait for. Each makes that over HTTP and by plant, and says
// which /why tells it.
var others = []struct {
	name, kinds string
	make        func(d *door) (why string)
}{
	{"its processor is paused", "processor_paused", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", addOne)
		d.want(200, "POST", "/processors/main/pause", "")
		return "/processors/main/batches/1/why"
	}},
	{"its processor is ticked by hand", "no_tick", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", addOne)
		return "/processors/main/batches/1/why"
	}},
	{"others stand before it", "line", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", addOne)
		d.want(201, "POST", "/processors/main/batches", addOne)
		return "/processors/main/batches/2/why"
	}},
	{"High comes first", "high_first", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", strings.Replace(addOne, "{", `{"priority": "High", `, 1))
		d.want(201, "POST", "/processors/main/batches", addOne)
		return "/processors/main/batches/2/why"
	}},
	{"the head of High cools", "starving", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", strings.Replace(addOne, "{", `{"priority": "High", `, 1))
		d.want(201, "POST", "/processors/main/batches", addOne)
		d.plant(`UPDATE postern.batch SET retries = 1, cooldown_until = now() + interval '1 h' WHERE batch_id = 1`)
		return "/processors/main/batches/2/why"
	}},
	{"it cools", "cooldown", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", addOne)
		d.plant(`UPDATE postern.batch SET retries = 1, cooldown_until = now() + interval '1 h'`)
		return "/processors/main/batches/1/why"
	}},
	{"it was not delivered", "undelivered", func(d *door) string { return d.undelivered("pay") }},
	{"it was not delivered, and its authorization has a name with all signs", "undelivered",
		func(d *door) string { return d.undelivered("a shop/1 50% ü?#'") }},
	{"a callback is pending", "callback_pending", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", addOne)
		d.plant(`INSERT INTO postern.batch_callback (batch_id, address, payload, deadline)
			VALUES (1, 'bob', '1', now() + interval '1 h')`)
		d.plant(`DELETE FROM postern.batch_place`)
		d.plant(`UPDATE postern.batch SET was = 'Executing', state = 'Waiting_Callback'`)
		return "/processors/main/batches/1/why"
	}},
	{"it is executed", "batch_executing,no_live_node", func(d *door) string {
		d.want(201, "POST", "/processors/main/batches", addOne)
		d.want(200, "POST", "/processors/main/tick", "")
		return "/processors/main/batches/1/why"
	}},
	{"a source is paused", "source_paused", func(d *door) string {
		d.want(201, "PUT", "/sources/app", pushSource)
		d.want(200, "POST", "/sources/app/pause", "")
		return "/sources/app/why"
	}},
	{"the context of a source is drained", "context_draining", func(d *door) string {
		d.want(201, "PUT", "/sources/app", pushSource)
		d.want(200, "POST", "/contexts/default/drain", "")
		if err := d.store.Refresh(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
		return "/sources/app/why"
	}},
	{"a source has stopped", "source_stopped", func(d *door) string {
		d.want(201, "PUT", "/sources/app", pushSource)
		d.plant(`UPDATE postern.source SET state = 'failed', last_error = 'its page cannot be read'`)
		return "/sources/app/why"
	}},
	{"a source gives no page", "no_page", func(d *door) string {
		const source = `{"kind": "http_json", "url": "http://127.0.0.1:1/", "map": {"items": "/i", "cursor": "/c", ` +
			`"more": "/m", "id": "/id", "fqn": "/tool"}}`
		d.want(201, "PUT", "/sources/app", source)
		d.plant(`UPDATE postern.source SET failures = 3, last_error = 'refused'`)
		return "/sources/app/why"
	}},
	{"an event has ended", "ended", func(d *door) string { return "/events/" + d.deadEvent() + "/why" }},
	{"an event waits while others call its tool", "tool_busy", func(d *door) string {
		d.event()
		d.plant(`UPDATE postern.event SET was = 'Queued', status = 'Active'`)
		waits := d.event()
		d.slots(1)
		return "/events/" + waits + "/why"
	}},
	{"an event waits while others call tools", "engine_busy", func(d *door) string {
		d.event()
		d.plant(`UPDATE postern.event SET was = 'Queued', status = 'Active', fqn = 'xyz.labs.other@1'`)
		waits := d.event()
		d.slots(1)
		return "/events/" + waits + "/why"
	}},
	{"the dispatcher of tools was removed", "no_dispatcher", func(d *door) string {
		waits := d.event()
		d.plant(`UPDATE postern.dispatcher SET removed_at = now() WHERE type = '` + leader.TypeTool + `'`)
		return "/events/" + waits + "/why"
	}},
	{"the dispatcher of results was removed", "no_dispatcher", func(d *door) string {
		waits := d.event()
		d.plant(`UPDATE postern.event
			SET was = 'Queued', status = 'Active', outcome = 'failed',
				tool_id = '00000000-0000-0000-0000-000000000001'`)
		d.plant(`UPDATE postern.dispatcher SET removed_at = now() WHERE type = '` + leader.TypeResult + `'`)
		return "/events/" + waits + "/why"
	}},
}

// plant runs a statement on the database of the door, and lets its process read what is configured.
func (d *door) plant(sql string) {
	d.t.Helper()
	if _, err := d.store.Pool().Exec(d.t.Context(), sql); err != nil {
		d.t.Fatalf("%v: %s", err, sql)
	}
	if err := d.store.Refresh(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// slots is how many events may call tools at a time.
func (d *door) slots(n int) {
	d.t.Helper()
	d.plant(fmt.Sprintf(`
		UPDATE postern.dispatcher
		SET settings = settings || '{"slots": %d}'
		WHERE type = '%s'`, n, leader.TypeTool))
}

// undelivered makes a batch of an authorization that no worker has taken in time.
func (d *door) undelivered(label string) string {
	d.t.Helper()
	d.want(200, "PATCH", "/processors/main", `{"deliver_within": "1ms"}`)
	d.want(201, "POST", "/authorizations", strings.Replace(payOnce, `"pay"`, fmt.Sprintf("%q", label), 1))
	d.want(201, "POST", "/authorizations/"+url.PathEscape(label)+"/send",
		`{"messages": [{"msg": {"add": {}}}], "ttl": 3600}`)
	d.want(200, "POST", "/processors/main/tick?wait=30s", "")
	return "/processors/main/batches/1/why"
}

// Each lever of what batches, sources and events wait for is taken as it is printed, too.
func TestEveryLeverOfBatchesAndSourcesIsTaken(t *testing.T) {
	for _, c := range others {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for n, more := 0, true; more; n++ {
				d := openPlant(t)
				at := c.make(d)
				var kinds []string
				for _, b := range d.why(at).Blockers {
					kinds = append(kinds, b.Kind)
				}
				if got := strings.Join(kinds, ","); got != c.kinds {
					t.Fatalf("%s, want %s", got, c.kinds)
				}
				more = d.pull(at, n)
			}
		})
	}
}

// Each kind of blocker is in one of the tables whose levers are tried.
func TestEverythingInTheWayIsTried(t *testing.T) {
	tried := map[string]bool{"held": true}
	for _, c := range pgworld.Stands {
		for _, k := range strings.Split(c.Kinds, ",") {
			tried[k] = true
		}
	}
	for _, c := range others {
		for _, k := range strings.Split(c.kinds, ",") {
			tried[k] = true
		}
	}
	for _, k := range []string{"staged", "retry_delay", "line_turn", "tool_call", "result_offered", "result_waits"} {
		tried[k] = true // they have no lever of their own
	}
	kind := regexp.MustCompile(`Kind(?:, [a-zA-Z. ,]+)?(?: = |: +)"([a-z]+_[a-z_]+)"|` +
		`(?:x\.add|own|block|x\.pause)\("([a-z_]+)"`)
	found := 0
	for _, room := range []string{"reads", "batches", "events"} {
		files, err := filepath.Glob("../pg/" + room + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f, "_test.go") || !strings.Contains(string(text), "Lever") {
				continue
			}
			for _, m := range kind.FindAllStringSubmatch(string(text), -1) {
				if found++; !tried[m[1]+m[2]] {
					t.Errorf("%s: no test tries the levers of %s", f, m[1]+m[2])
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("%d kinds are found in the source", found)
	}
}
