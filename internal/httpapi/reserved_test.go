package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// example is a name of a system behind each reserved prefix.
var example = map[string][]string{
	"leader.":    {"leader.tool", "leader.result", "leader.other"},
	"event:":     {"event:00000000-0028-82d0-944b-c7c000000001:result", "event:x:tool:2"},
	"processor:": {"processor:main:1"},
	"peer.":      {"peer.paris"},
	"peer:":      {"peer:paris"},
}

// posting is a door with the context shop, in which there is the type pay, and a header for each role that posts there.
type posting struct {
	*door
	root, in string
	roles    map[string]string
}

func postingDoor(t *testing.T) *posting {
	t.Helper()
	d, root := closedDoor(t)
	in := "Postern-Context: shop"
	d.want(201, "PUT", "/contexts/shop", "{}", root)
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`, root, in)
	admin, _, _ := d.key(root, "shop", "admin")
	executor, _, _ := d.key(root, "shop", "executor")
	return &posting{d, root, in, map[string]string{"system admin": root, "admin": admin, "executor": executor}}
}

// waits posts one that waits, and ended one that was cancelled.
func (p *posting) waits(header string) string {
	p.t.Helper()
	item := `{"type": "pay", "queue": "q", "not_before": "2100-01-01T00:00:00Z"}`
	return p.want(201, "POST", "/transactions", item, header, p.in).str("id")
}

func (p *posting) ended(header string) string {
	p.t.Helper()
	id := p.waits(header)
	p.want(200, "POST", "/transactions/"+id+"/cancel", "", header, p.in)
	return id
}

// forbids fails the test unless a request is refused because of the field at pointer, "" for any.
func (p *posting) forbids(is, pointer, path, body string, headers ...string) {
	p.t.Helper()
	a := p.refused(403, "forbidden", "POST", path, body, append(headers, p.in)...)
	if pointer != "" && !strings.Contains(a.raw, `"pointer":"`+pointer+`"`) {
		p.t.Errorf("%s: %s", is, a.raw)
	}
}

// The names under which systems of Postern post are theirs: no role posts under one, at whatever door.
func TestNoRolePostsUnderTheNamesOfASystem(t *testing.T) {
	d := postingDoor(t)
	for role, header := range d.roles {
		waits, over := d.waits(header), d.ended(header)
		for _, r := range outbox.ReservedNames() {
			if len(example[r.Prefix]) == 0 {
				t.Errorf("no example of %v", r)
			}
			for _, value := range example[r.Prefix] {
				d.tryName(role+", "+value, r.Field, value, header)
				other, key := fmt.Sprintf(`{%q: %q}`, r.Field, value), "Idempotency-Key: "+value
				redrive := "/transactions/" + over + "/redrive"
				switch {
				case r.Field == "uid":
					d.forbids(role, "/uid", "/transactions", `{"type": "pay", "queue": "q"}`, header, key)
					d.forbids(role, "/uid", redrive, "", header, key)
					d.forbids(role, "/uid", redrive, other, header)
				case r.Field == "queue":
					d.forbids(role, "/queue", redrive, other, header)
					if role == "executor" { // to whom moving is closed
						continue
					}
					d.forbids(role, "/queue", "/transactions/"+waits+"/move", other, header)
					many := fmt.Sprintf(`{"ids": [%q], "queue": %q}`, waits, value)
					d.forbids(role, "/queue", "/transactions:move", many, header)
				}
			}
		}
	}
}

// tryName posts under a name of a system, alone and in batches.
func (p *posting) tryName(is, field, value, header string) {
	p.t.Helper()
	fields := map[string]string{"type": "pay", "queue": "q", "uid": "u"}
	fields[field] = value
	item := fmt.Sprintf(`{"type": %q, "queue": %q, "uid": %q, "not_before": "2030-01-01T00:00:00Z"}`,
		fields["type"], fields["queue"], fields["uid"])
	p.forbids(is, "/"+field, "/transactions", item, header)
	p.forbids(is, "/items/0/"+field, "/transactions:batch", `{"atomic": true, "items": [`+item+`]}`, header)
	b := p.want(207, "POST", "/transactions:batch", `{"items": [`+item+`, {"type": "pay"}]}`, header, p.in)
	if !strings.Contains(b.raw, `"status":403`) || strings.Count(b.raw, `"status":201`) != 1 {
		p.t.Errorf("%s: %s", is, b.raw)
	}
}

// A dispatcher says who may post to its type, which is held at each door for each role.
func TestATypeSaysWhoMayPostToIt(t *testing.T) {
	d := postingDoor(t)
	may := map[string]map[string]bool{
		"anyone":     {"system admin": true, "admin": true, "executor": true},
		"admin":      {"system admin": true, "admin": true},
		"processors": {},
	}
	over := map[string]string{}
	for posted := range may {
		for role, header := range d.roles {
			over[posted+role] = d.ended(header)
		}
	}
	for posted, allowed := range may {
		settings := fmt.Sprintf(`{"worker_url": "http://127.0.0.1:1/", "posted_by": %q}`, posted)
		if v := d.want(200, "PUT", "/dispatchers/pay", settings, d.root, d.in); v.str("posted_by") != posted {
			t.Error(v.raw)
		}
		for role, header := range d.roles {
			d.tryType(posted+", "+role, over[posted+role], allowed[role], header)
			if allowed[role] || role == "executor" { // to whom bulk is closed
				continue
			}
			b := d.want(200, "POST", "/transactions:redrive", `{"ids": ["`+over[posted+role]+`"]}`, header, d.in)
			if !strings.Contains(b.raw, `"code":"forbidden"`) {
				t.Errorf("%s, %s: %s", posted, role, b.raw)
			}
		}
	}
}

// tryType posts to the type pay, alone and in batches, and redrives one of that type.
func (p *posting) tryType(is, over string, may bool, header string) {
	p.t.Helper()
	const item = `{"type": "pay", "queue": "q"}`
	atomic, each := `{"atomic": true, "items": [`+item+`]}`, `{"items": [`+item+`]}`
	redrive := "/transactions/" + over + "/redrive"
	b := p.call("POST", "/transactions:batch", each, header, p.in)
	if !may {
		p.forbids(is, "/type", "/transactions", item, header)
		p.forbids(is, "/items/0/type", "/transactions:batch", atomic, header)
		p.forbids(is, "/type", redrive, `{"data": {"n": 1}}`, header)
		if !strings.Contains(b.raw, `"status":403`) {
			p.t.Errorf("%s: %s", is, b.raw)
		}
		return
	}
	p.want(201, "POST", "/transactions", item, header, p.in)
	p.want(201, "POST", "/transactions:batch", atomic, header, p.in)
	p.want(201, "POST", redrive, "", header, p.in)
	if !strings.Contains(b.raw, `"status":201`) {
		p.t.Errorf("%s: %s", is, b.raw)
	}
}

// posted_by is a setting like others: it is checked, and applied from a file. It is leader where the name is reserved,
// and nowhere else.
func TestWhoMayPostIsCheckedAndApplied(t *testing.T) {
	d := newDoor(t)
	d.refused(422, "invalid", "PUT", "/dispatchers/T", `{"worker_url": "noop:", "posted_by": "friends"}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/T", `{"worker_url": "noop:", "posted_by": "leader"}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/leader.result", `{"worker_url": "noop:", "posted_by": "anyone"}`)
	v := d.want(201, "PUT", "/dispatchers/leader.result", `{"worker_url": "noop:"}`)
	if v.str("posted_by") != "leader" {
		t.Error(v.raw)
	}
	if v := d.want(201, "PUT", "/dispatchers/T", `{"worker_url": "noop:"}`); v.str("posted_by") != "anyone" {
		t.Error(v.raw)
	}
	d.want(200, "POST", "/apply", these("", `{"kind": "dispatcher", "name": "T",
		"settings": {"worker_url": "noop:", "posted_by": "processors"}}`))
	d.refused(403, "forbidden", "POST", "/transactions", `{"type": "T"}`)
	bad := these("", `{"kind": "dispatcher", "name": "T", "settings": {"worker_url": "noop:", "posted_by": "leader"}}`)
	d.refused(422, "invalid", "POST", "/apply", bad)
}

// A type of processors takes nothing else than batches, and a type of others takes no batch.
func TestATypeOfProcessorsTakesBatchesAlone(t *testing.T) {
	d := postingDoor(t)
	root, in, roles := d.root, d.in, d.roles
	d.want(201, "PUT", "/dispatchers/T", `{"worker_url": "noop:", "posted_by": "processors"}`, root, in)
	d.want(201, "PUT", "/dispatchers/A", `{"worker_url": "noop:", "posted_by": "admin"}`, root, in)
	d.want(201, "PUT", "/processors/main", `{"tick_interval": "0s"}`, root, in)
	shape := func(typ string) string {
		return fmt.Sprintf(`{"label": %q, "mode": "permissionless", "actions_config": {"non_atomic": {"functions": [
			{"domain": "main", "message_details": {"message": {"name": "pay"}}, "contract_address": %[1]q}]}}}`, typ)
	}
	p := d.refused(422, "invalid", "POST", "/authorizations", shape("A"), root, in)
	if !strings.Contains(p.raw, "/actions_config/non_atomic/functions/0/contract_address") {
		t.Error(p.raw)
	}
	d.want(201, "POST", "/authorizations", shape("T"), root, in)
	const messages = `{"messages": [{"msg": {"pay": {}}}]}`
	sent := d.want(201, "POST", "/authorizations/T/send", messages, roles["executor"], in)
	d.want(200, "POST", "/processors/main/tick", "", root, in)
	list := d.want(200, "GET", "/transactions?type=T", "", root, in)
	if !strings.Contains(list.raw, `"queue":"processor:main:`) {
		t.Errorf("%s after %s", list.raw, sent.raw)
	}
	d.refused(403, "forbidden", "POST", "/transactions", `{"type": "T"}`, roles["executor"], in)
	p = d.refused(422, "invalid", "PUT", "/processors/afar", `{"deliver_as": "A"}`, root, in)
	if !strings.Contains(p.raw, "/deliver_as") {
		t.Error(p.raw)
	}
}

// The drain decides about each staged row: one that became forbidden since ends FAILED, and one that a superuser staged
// under a name of a system takes that name from none.
func TestWhatIsStagedIsHeldAgainstWhoMayPostOnceMore(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("T")
	if err := d.stage(`SELECT postern.submit('q', 'T', '{}', uid => 'before')`); err != nil {
		t.Fatal(err)
	}
	d.want(200, "PATCH", "/dispatchers/T", `{"posted_by": "processors"}`)
	d.drain()
	v := d.want(200, "GET", "/transactions/by-uid/before", "")
	if v.str("state") != "FAILED" || !strings.Contains(v.raw, "forbidden") {
		t.Error(v.raw)
	}
	d.want(200, "PATCH", "/dispatchers/T", `{"posted_by": "admin"}`)
	if err := d.stage(`SELECT postern.submit('q', 'T', '{}', uid => 'owner')`); err != nil { // the owner is an admin
		t.Fatal(err)
	}
	d.drain()
	if v := d.want(200, "GET", "/transactions/by-uid/owner", ""); v.str("state") != "WAITING" {
		t.Error(v.raw)
	}
	err := pgx.BeginFunc(t.Context(), d.store.Pool(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica;
			INSERT INTO postern.outbox (context_id, uid, queue, type, data, actor)
			SELECT context_id, v.*, '{}'::jsonb, 'super' FROM postern.context, (VALUES ('event:x:result', 'q', 'T'),
				('a', 'processor:main:1', 'T'), ('b', 'q', 'leader.result')) v (uid, queue, type) WHERE name = 'default'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if d.stagedRows() > 0 {
			d.drain()
		}
	}
	d.refused(404, "not_found", "GET", "/transactions/by-uid/event:x:result", "")
	list := d.want(200, "GET", "/transactions?state=FAILED", "")
	if strings.Contains(list.raw, "processor:main:1\"") || strings.Count(list.raw, `"code":"forbidden"`) != 4 {
		t.Error(list.raw)
	}
}

func (d *door) stagedRows() (n int) {
	if err := d.store.Pool().QueryRow(d.t.Context(), `SELECT count(*) FROM postern.outbox`).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// The key of a batch gives its items uids: one by which a system posts is refused with the key that made it, for items
// without a uid alone.
func TestAKeyThatMakesANameOfASystemIsNamed(t *testing.T) {
	d := postingDoor(t)
	header, key := d.roles["executor"], "Idempotency-Key: event"
	item := `{"type": "pay", "queue": "q", "not_before": "2100-01-01T00:00:00Z"%s}`
	nameless, named := fmt.Sprintf(item, ""), fmt.Sprintf(item, `, "uid": "mine"`)
	const says = "Idempotency-Key event gives this item, which has no uid, the uid event:"
	all := `{"atomic": true, "items": [` + named + `, ` + nameless + `]}`
	a := d.refused(403, "forbidden", "POST", "/transactions:batch", all, header, key, d.in)
	if !strings.Contains(a.raw, says+"1") || !strings.Contains(a.raw, `"pointer":"Idempotency-Key"`) ||
		!strings.Contains(a.raw, "by Postern alone: send another key, or a uid with each item") {
		t.Error(a.raw)
	}
	b := d.want(207, "POST", "/transactions:batch", `{"items": [`+nameless+`, `+named+`]}`, header, key, d.in)
	if !strings.Contains(b.raw, says+"0") || strings.Count(b.raw, `"status":201`) != 1 {
		t.Error(b.raw)
	}
}
