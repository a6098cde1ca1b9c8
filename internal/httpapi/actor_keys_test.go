package httpapi_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// open lets actors register themselves.
func open(c *httpapi.Config) { c.Registration = "open" }

func TestAnActorRegistersItselfByARequestThatItsKeyHasSigned(t *testing.T) {
	d, root := closedDoor(t, open)
	key := drawn(t)
	body := fmt.Sprintf(`{"public_keys": [%q], "own_context": "anns"}`, public(key))
	a := d.asActor(201, key, "POST", "/actors", body)
	ann := a.str("id")
	keys, roles := a.body["public_keys"].([]any), a.body["roles"].(map[string]any)
	if len(keys) != 1 || keys[0] != public(key) || roles["anns"] != "admin" {
		t.Error(a.raw)
	}
	again := d.asActor(200, key, "POST", "/actors", body)
	if b := again; b.str("id") != ann || b.header.Get("Idempotent-Replay") != "true" {
		t.Error("who registers again is another: " + b.raw)
	}
	// it is an actor like any other, and makes contexts
	d.asActor(200, key, "GET", "/actors/"+ann, "")
	d.asActor(201, key, "PUT", "/dispatchers/pay", `{"worker_url": "noop:"}`)
	p := d.asActor(201, key, "POST", "/transactions", `{"type": "pay", "uid": "a"}`, "Idempotency-Key: a")
	if p.str("actor") != ann {
		t.Error(p.raw)
	}
	c := d.asActor(201, key, "PUT", "/contexts/second", `{"max_depth": 5}`, "Postern-Context: anns")
	if fmt.Sprint(c.body["admins"]) != "["+ann+"]" {
		t.Error(c.raw)
	}
	d.want(201, "PUT", "/contexts/shop", `{}`, root)
	d.want(404, "PUT", "/contexts/shop", `{}`, d.signed(key, "PUT", "/contexts/shop", `{}`)...)
	// the name of a context that was is not given to a stranger
	d.want(201, "PUT", "/contexts/gone", `{}`, root)
	d.want(204, "DELETE", "/contexts/gone", "", root)
	d.refused(409, "in_use", "PUT", "/contexts/gone", `{}`, d.signed(key, "PUT", "/contexts/gone", `{}`)...)
	other := drawn(t)
	for _, taken := range []string{"gone", "anns"} {
		body := fmt.Sprintf(`{"own_context": %q}`, taken)
		d.refused(409, "in_use", "POST", "/actors", body, d.signed(other, "POST", "/actors", body)...)
	}
	// a signature registers once, and its request brings no other key, and no identity
	headers := d.signed(other, "POST", "/actors", `{}`)
	d.want(201, "POST", "/actors", `{}`, headers...)
	d.refused(401, "replayed_signature", "POST", "/actors", `{}`, headers...)
	third := drawn(t)
	for status, body := range map[int]string{
		422: fmt.Sprintf(`{"public_keys": [%q]}`, public(key)),
		403: `{"oidc": {"issuer": "https://id.example", "subject": "ann"}}`,
	} {
		d.want(status, "POST", "/actors", body, d.signed(third, "POST", "/actors", body)...)
	}
	d.refused(401, "unauthenticated", "GET", "/queues", "", d.signed(third, "GET", "/queues", "")...)
	rows := d.want(200, "GET", "/audit?object=/actors/"+ann, "", root, "Postern-Context: system")
	if !strings.Contains(rows.raw, `"actor":"`+ann+`"`) {
		t.Error(rows.raw)
	}
}

// twoDoors are two processes of one installation, and a key of an admin of system.
func twoDoors(t *testing.T) (d, e *door, root string) {
	t.Helper()
	d, root = closedDoor(t, open)
	other := (&pgtest.DB{URL: pgtest.URL(d.store.Pool())}).Store(t, 8)
	return d, doorTo(t, other, open, func(c *httpapi.Config) { c.Auth, c.PublicURL = "required", d.url }), root
}

// meanwhile does one thing while another, which does it first at d, has not committed: the one waits for the other.
func (d *door) meanwhile(first, second func()) {
	d.t.Helper()
	var once sync.Once
	done := make(chan struct{})
	d.store.HoldCommits(func(ctx context.Context, _ uint32) error {
		once.Do(func() {
			go func() { defer close(done); second() }()
			for blocked := 0; blocked == 0 && ctx.Err() == nil; {
				if err := d.store.Pool().QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`).
					Scan(&blocked); err != nil {
					d.t.Error(err)
					return
				}
			}
		})
		return nil
	})
	first()
	<-done
	d.store.HoldCommits(nil)
}

// Who registers again while the first attempt has not committed yet is that actor, and needs no other key.
func TestWhoRegistersTwiceAtOnceIsOneActor(t *testing.T) {
	d, e, _ := twoDoors(t)
	for _, with := range [][]string{nil, {"Idempotency-Key: a"}} {
		key := drawn(t)
		var a, b answer
		const body = `{}`
		again := d.signed(key, "POST", "/actors", body, with...)
		d.meanwhile(func() { a = d.call("POST", "/actors", body, d.signed(key, "POST", "/actors", body, with...)...) },
			func() { b = e.call("POST", "/actors", body, again...) })
		if a.status != 201 || b.status != 200 || a.str("id") != b.str("id") ||
			b.header.Get("Idempotent-Replay") != "true" {
			t.Errorf("%d %s, and then %d %s", a.status, a.raw, b.status, b.raw)
		}
		e.refused(401, "replayed_signature", "POST", "/actors", body, again...)
		// the very same request twice: its nonce is used once
		headers := d.signed(drawn(t), "POST", "/actors", body, with...)
		d.meanwhile(func() { a = d.call("POST", "/actors", body, headers...) },
			func() { b = e.call("POST", "/actors", body, headers...) })
		if a.status != 201 || b.body["code"] != "replayed_signature" {
			t.Errorf("%d %s, and then %d %s", a.status, a.raw, b.status, b.raw)
		}
	}
}

// One process lets an admin in by what it remembers, while it is taken out at another one.
func TestAnAdminWhoIsTakenOutDoesNotPutItselfBack(t *testing.T) {
	d, e, root := twoDoors(t)
	ann := drawn(t)
	a := d.asActor(201, ann, "POST", "/actors", `{"own_context": "shop"}`).str("id")
	b := d.asActor(201, drawn(t), "POST", "/actors", `{}`).str("id")
	d.asActor(200, ann, "PUT", "/contexts/shop/members/"+b, `{"roles": ["admin"]}`)
	fine := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	fine(e.store.Refresh(t.Context()))
	key, _, id := d.key(root, "shop", "admin")
	path := "/contexts/shop/members/" + a
	const roles = `{"roles": ["admin"]}`
	by := db.By{Context: d.store.Context("shop").ID, Actor: "test", Via: "test"}
	d.meanwhile(func() { _, err := d.store.SetMember(t.Context(), by, "shop", a, nil); fine(err) },
		func() { e.call("PUT", path, roles, d.signed(ann, "PUT", path, roles)...) })
	if c := d.want(200, "GET", "/contexts/shop", "", root); strings.Contains(c.raw, a) {
		t.Error("it is back: " + c.raw)
	}
	var made answer
	d.meanwhile(func() { fine(d.store.Actors.RemoveKey(t.Context(), by, uuid.MustParse(id))) },
		func() { made = e.call("POST", "/api-keys", `{"name": "next", "role": "admin"}`, key) })
	if made.status != 401 {
		t.Errorf("a key that is revoked makes another one: %d %s", made.status, made.raw)
	}
}

// A PUT by which an actor makes its context may be sent again after a lost answer, also at a process that does not know
// the context yet: the admins stay.
func TestWhoMakesAContextMayPutItAgain(t *testing.T) {
	d, e, _ := twoDoors(t)
	key := drawn(t)
	ann := d.asActor(201, key, "POST", "/actors", `{}`).str("id")
	bob := d.asActor(201, drawn(t), "POST", "/actors", `{}`).str("id")
	d.asActor(422, key, "PUT", "/contexts/mine", fmt.Sprintf(`{"admins": [%q]}`, bob))
	d.asActor(422, key, "PUT", "/contexts/mine", fmt.Sprintf(`{"readers": [%q]}`, bob))
	both := fmt.Sprintf(`{"admins": [%q, %q]}`, ann, bob)
	for name, body := range map[string]string{"mine": `{}`, "ours": both} {
		path := "/contexts/" + name
		first := d.asActor(201, key, "PUT", path, body)
		for _, at := range []*door{d, e} {
			a := at.want(200, "PUT", path, body, d.signed(key, "PUT", path, body)...)
			if fmt.Sprint(a.body["admins"]) != fmt.Sprint(first.body["admins"]) {
				t.Errorf("%s, and then %s", first.raw, a.raw)
			}
		}
	}
	d.asActor(409, key, "PUT", "/contexts/mine", `{"admins": []}`)
}

func TestWhereRegistrationIsClosedAdminsMakeActors(t *testing.T) {
	d, root := closedDoor(t)
	key := drawn(t)
	d.refused(401, "unauthenticated", "POST", "/actors", `{}`, d.signed(key, "POST", "/actors", `{}`)...)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	d.asActor(200, key, "GET", "/actors/"+ann, "")
	d.refused(403, "forbidden", "POST", "/actors", `{}`, d.signed(key, "POST", "/actors", `{}`)...)
	d.refused(404, "not_found", "PUT", "/contexts/anns", `{}`, d.signed(key, "PUT", "/contexts/anns", `{}`)...)
	i := d.asActor(200, key, "GET", "/identity", "")
	if i.str("registration") != "closed" || i.str("installation") == "" {
		t.Error(i.raw)
	}
	// it changes itself alone, and not who it is to a provider
	bob := d.want(201, "POST", "/actors", `{}`, root).str("id")
	d.asActor(200, key, "PATCH", "/actors/"+ann, `{"address": ["https://ann.example"]}`)
	oidc := `{"oidc": {"issuer": "https://id.example", "subject": "root"}}`
	d.refused(403, "forbidden", "PATCH", "/actors/"+ann, oidc, d.signed(key, "PATCH", "/actors/"+ann, oidc)...)
	for _, path := range []string{"/actors/" + bob, "/actors/missing"} {
		d.refused(404, "not_found", "PATCH", path, `{}`, d.signed(key, "PATCH", path, `{}`)...)
		d.refused(404, "not_found", "GET", path, "", d.signed(key, "GET", path, "")...)
		d.refused(404, "not_found", "DELETE", path+"/keys/"+keyID(key), "",
			d.signed(key, "DELETE", path+"/keys/"+keyID(key), "")...)
	}
}

// The keys of small order, and those of others, are taken for no new actor.
func TestAPublicKeyThatIsTakenOrForgeableIsRefused(t *testing.T) {
	d, root := closedDoor(t, open)
	key := drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	before := d.want(200, "GET", "/actors", "", root).raw
	for body, code := range map[string]string{
		fmt.Sprintf(`{"public_keys": [%q]}`, public(key)):                       "409 in_use",
		`{"public_keys": ["AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`:     "422 invalid", // the neutral point
		`{"public_keys": ["7P///////////////////////////////////////38="]}`:     "422 invalid", // of order 2
		`{"public_keys": ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`:     "422 invalid", // of order 4
		`{"public_keys": ["xxdqcD1N2E+6PAt2DRBnDyogU/osOczGTsf9d5KsA3o="]}`:     "422 invalid", // of order 8
		`{"public_keys": ["AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`:     "422 invalid", // no point
		fmt.Sprintf(`{"public_keys": [%q, %q]}`, public(drawn(t)), public(key)): "409 in_use",
		`{"public_keys": ["` + strings.Repeat("A", 44) + `"]}`:                  "422 invalid",
	} {
		status, name, _ := strings.Cut(code, " ")
		if got, said := d.status("POST", "/actors", body, root); fmt.Sprint(got) != status || said != name {
			t.Errorf("%s: %d %s, want %s", body, got, said, code)
		}
	}
	if after := d.want(200, "GET", "/actors", "", root).raw; after != before {
		t.Errorf("something was stored: %s", after)
	}
	_ = ann
}

func TestAKeyIsRotated(t *testing.T) {
	d, root := closedDoor(t)
	old, next := drawn(t), drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(old)), root).str("id")
	bob := d.want(201, "POST", "/actors", `{}`, root).str("id")
	here := d.asActor(200, old, "GET", "/identity", "").str("installation")
	keys := "/actors/" + ann + "/keys"
	add := func(key ed25519.PrivateKey, proof string) string {
		return fmt.Sprintf(`{"public_key": %q, "proof": %q}`, public(key), proof)
	}
	// only the new key itself proves that it is to be one of this actor, here
	for _, proof := range []string{
		"", "?", signature.Prove(old, here, ann), signature.Prove(next, here, bob), signature.Prove(next, "there", ann),
	} {
		body := add(next, proof)
		d.refused(422, "invalid", "POST", keys, body, d.signed(old, "POST", keys, body)...)
	}
	body := add(next, signature.Prove(next, here, ann))
	d.refused(401, "unauthenticated", "POST", keys, body, d.signed(next, "POST", keys, body)...)
	d.asActor(201, old, "POST", keys, body)
	d.asActor(200, next, "POST", keys, body) // it has it
	third := drawn(t)
	more := add(third, signature.Prove(third, here, ann))
	d.refused(409, "wrong_state", "POST", keys, more, d.signed(old, "POST", keys, more)...)
	taken := add(next, signature.Prove(next, here, bob))
	d.refused(409, "in_use", "POST", "/actors/"+bob+"/keys", taken, root)
	d.asActor(200, old, "GET", "/actors/"+ann, "")

	gone := keys + "/" + keyID(old)
	d.asActor(204, next, "DELETE", gone, "")
	d.refused(401, "unauthenticated", "GET", "/actors/"+ann, "", d.signed(old, "GET", "/actors/"+ann, "")...)
	a := d.asActor(200, next, "GET", "/actors/"+ann, "")
	list := a.body["keys"].([]any)
	if len(list) != 2 || len(a.body["public_keys"].([]any)) != 1 {
		t.Fatal(a.raw)
	}
	first, last := list[0].(map[string]any), list[1].(map[string]any)
	if first["public_key"] != public(next) || last["retired_at"] == nil || last["compromised"] != false {
		t.Error(a.raw)
	}
	d.asActor(204, next, "DELETE", gone, "") // it is retired
	d.asActor(204, next, "DELETE", gone+"?compromised=true", "")
	a = d.want(200, "GET", "/actors/"+ann, "", root)
	if a.body["keys"].([]any)[1].(map[string]any)["compromised"] != true {
		t.Error(a.raw)
	}
	back := add(old, signature.Prove(old, here, ann))
	d.refused(409, "wrong_state", "POST", keys, back, d.signed(next, "POST", keys, back)...)
	d.refused(404, "not_found", "DELETE", keys+"/"+keyID(third), "", root)
	d.asActor(201, next, "POST", keys, more)
}
