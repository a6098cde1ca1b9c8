package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

const peerSecret = `{"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}`

// caller calls what a peer may as another installation does: with the client of workers.
type caller struct {
	d      *door
	client *remote.Client
	seen   remote.Exchange
	secret []byte
}

func newCaller(d *door) *caller {
	c := &caller{d: d, secret: []byte("0123456789abcdef0123456789abcdef")}
	c.client = remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Observe: func(_ context.Context, x remote.Exchange) { c.seen = x }})
	d.t.Cleanup(c.client.Close)
	return c
}

// send sends what data is to a processor, as the transaction that ends with n, and returns what it was answered.
func (c *caller) send(at string, n int, data string) (outbox.Answer, string) {
	c.d.t.Helper()
	id := transactionOf(c.d.t, n)
	a := c.client.Dispatch(remote.Signed(c.d.t.Context(), c.secret), remote.Call{BaseURL: c.d.url + "/contexts/default/processors/" + at, Type: "FAR", ID: id, Attempt: 1,
		Data: json.RawMessage(data), PostedAt: arrived, Timeout: 30 * time.Second})
	return a, fmt.Sprint(c.seen.Status, " ", a.Class, " ", timeOfHash.ReplaceAllString(a.Result.Hash, ""), string(a.Result.Done))
}

// arrived is when all transactions of callers arrived where they are sent.
var arrived = time.UnixMicro(1_700_000_000_123_456)

// timeOfHash is the part of a batch's hash that says when it was made: it differs from run to run.
var timeOfHash = regexp.MustCompile(`@[0-9]+$`)

// transactionOf is the id that ends with n.
func transactionOf(t *testing.T, n int) outbox.ID {
	t.Helper()
	id, err := outbox.ParseID(fmt.Sprintf("01900000-0000-8000-8000-%012d", n))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (c *caller) wants(at string, n int, data, want string) {
	c.d.t.Helper()
	if a, got := c.send(at, n, data); got != want {
		c.d.t.Errorf("%s: %s, want %s: %s (%s)", data, got, want, a.Message, a.Code)
	}
}

func envelope(id int, msg string, more ...string) string {
	return fmt.Sprintf(`{"id": %d, "created_at": "2026-11-20T14:04:10.5Z", "priority": "Med", "actions_config": {"non_atomic": {"functions": [%s]}}, "msgs": [%s]%s}`,
		id, strings.Replace(addFunction, `"main"`, `"theirs"`, 1), msg, strings.Join(more, ""))
}

// S4.14, S5.10: 202 stored, 200 known, 401, 403, 404, 409, 413; and nothing of it needs a key.
func TestAPeerSendsABatchOnce(t *testing.T) {
	d, root := closedDoor(t)
	const in = "Postern-Context: default"
	d.want(201, "PUT", "/dispatchers/ADD", `{"worker_url": "http://127.0.0.1:9/"}`, root, in)
	_, another, _ := d.key(root, "default", "admin")
	for _, name := range []string{"main", "other"} {
		d.want(201, "PUT", "/processors/"+name, `{"tick_interval": "0s", "owner": "`+another+`"}`, root, in)
	}
	if p := d.want(200, "PUT", "/processors/main/peers/near", peerSecret, root, in); p.str("worker_url") != "/contexts/default/processors/main/peers/near" || strings.Contains(p.raw, "whsec") {
		t.Error(p.raw)
	}
	d.refused(422, "invalid", "PUT", "/processors/main/peers/near", `{"secret": "whsec_short"}`, root, in)
	d.refused(404, "not_found", "PUT", "/processors/none/peers/near", peerSecret, root, in)
	c := newCaller(d)
	const at = "main/peers/near"
	one := envelope(7, `{"msg": {"add": {"n": 1}}}`)
	c.wants(at, 1, one, "202  1")
	c.wants(at, 1, one, "200  1")
	c.wants(at, 2, one, "200  1") // sent again there, as another transaction
	c.wants(at, 2, envelope(7, `{"msg": {"add": {"n": 2}}}`), "409 rejected ")
	c.wants(at, 3, envelope(8, `{"msg": {"add": {"n": 1}}}`, `, "expiration_time": "2026-11-20T14:04:11Z"`), `202  {"kind":"expired","n":0,"reason":"","retriable":false}`)
	c.wants(at, 4, envelope(9, `{"msg": {"sub": {"n": 1}}}`), "422 rejected ")
	c.wants(at, 4, `{"id": 10}`, "422 rejected ")
	c.wants(at, 4, envelope(9, `{"msg": {"add": {"n": 1}}}`, `, "surprise": true`), "422 rejected ")
	c.wants(at, 4, envelope(9, `{"msg": {"add": {"n": "`+strings.Repeat("x", 1<<20)+`"}}}`), "413 rejected ")
	c.wants("main/peers/far", 4, one, "404 rejected ")
	c.wants("none/peers/near", 4, one, "404 rejected ")
	c.wants("other/peers/near", 4, one, "403 rejected ")
	if _, err := d.store.Pool().Exec(t.Context(), `UPDATE postern.retained SET since = '2100-01-01'`); err != nil {
		t.Fatal(err)
	}
	c.wants(at, 1, one, "200  1")
	c.wants(at, 5, envelope(20, `{"msg": {"add": {"n": 1}}}`), "409 rejected ") // it may have been executed, and forgotten
	c.secret = []byte("another secret, of as many bytes")
	c.wants(at, 1, one, "401 blocked ")
	c.wants("other/peers/near", 1, one, "401 blocked ")
	c.secret = nil
	c.wants(at, 1, one, "401 blocked ")

	list := d.want(200, "GET", "/processors/main/batches", "", root, in)
	if list.ids() != "[1 2]" || list.items()[0]["initiator"] != "peer:near" || !strings.Contains(list.raw, `"domain":"main"`) {
		t.Error(list.raw)
	}
	if p := d.want(200, "GET", "/processors/main", "", root, in); fmt.Sprint(p.body["peers"]) != "[near]" {
		t.Error(p.raw)
	}
}

// Many messages with one batch at once, as from a wire that repeats: one is stored, and the others find it.
func TestABatchThatComesAtOnceIsOne(t *testing.T) {
	d := newPlant(t)
	d.want(200, "PUT", "/processors/main/peers/near", peerSecret)
	said := make(chan string, 8)
	for n := range cap(said) {
		go func() {
			c := newCaller(d)
			_, got := c.send("main/peers/near", n, envelope(7, `{"msg": {"add": {"n": 1}}}`))
			said <- got
		}()
	}
	count := map[string]int{}
	for range cap(said) {
		count[<-said]++
	}
	if count["202  1"] != 1 || count["200  1"] != cap(said)-1 {
		t.Error(count)
	}
	if list := d.want(200, "GET", "/processors/main/batches", ""); list.ids() != "[1]" {
		t.Error(list.raw)
	}
}

// A peer asks after a batch by its hash, or by the token that brought it. It is told nothing of batches of other peers.
func TestAPeerAsksAfterItsBatches(t *testing.T) {
	d := newPlant(t)
	c := newCaller(d)
	d.want(200, "PUT", "/processors/main/peers/near", peerSecret)
	base := d.url + "/contexts/default/processors/main/peers/near"
	asks := func(token, hash, want string) {
		t.Helper()
		st := c.client.Status(remote.Signed(t.Context(), c.secret), base, "FAR", token, hash)
		if got := fmt.Sprint(st.State, " ", timeOfHash.ReplaceAllString(st.Hash, ""), " ", st.FailureReason, st.BlockHeight); strings.TrimSpace(got) != want {
			t.Errorf("%s%s: %q, want %q (%s)", token, hash, got, want, st.Message)
		}
	}
	first, again := transactionOf(t, 1).Token(arrived, 1), transactionOf(t, 1).Token(arrived, 2)
	asks(first, "", "unknown")
	c.wants("main/peers/near", 1, envelope(7, `{"msg": {"add": {"n": 1}}}`), "202  1")
	d.want(201, "POST", "/processors/main/batches", addOne)
	asks(first, "", "pending 1")
	asks(again, "", "pending 1")
	hash := func(number string) string {
		return number + timeOfHash.FindString(c.client.Status(remote.Signed(t.Context(), c.secret), base, "FAR", first, "").Hash)
	}
	asks("", hash("1"), "pending 1")
	asks("", "1", "unknown 1") // of a time that was lost, perhaps: another batch had this number
	asks("", hash("2"), "unknown 2")
	asks("", "x", "unknown x")
	d.want(200, "POST", "/processors/main/evict", `{"id": 1}`)
	asks("", hash("1"), `failed 1 {"kind":"removed_by_owner","n":0,"reason":"","retriable":false}`)
	c.wants("main/peers/near", 9, envelope(7, `{"msg": {"add": {"n": 1}}}`), `200  {"kind":"removed_by_owner","n":0,"reason":"","retriable":false}`)
	for _, p := range c.client.Probes(remote.Signed(t.Context(), c.secret), base, "FAR") {
		if p.State == "bad" || p.State == "absent" && p.Check != "status:batch" && p.Check != "max-retries" {
			t.Error(p)
		}
	}
	one := hash("1")
	c.secret = nil
	asks("", one, "unreachable")

	d.want(204, "DELETE", "/processors/main/peers/near", "")
	d.refused(404, "not_found", "DELETE", "/processors/main/peers/near", "")
	c.wants("main/peers/near", 1, envelope(7, `{"msg": {"add": {"n": 1}}}`), "404 rejected ")
	d.want(200, "PUT", "/processors/main/peers/near", peerSecret)
	d.want(200, "POST", "/processors/main/evict", `{"id": 2}`)
	d.want(204, "DELETE", "/processors/main", "")
	d.want(201, "PUT", "/processors/main", `{}`)
	if p := d.want(200, "GET", "/processors/main", ""); fmt.Sprint(p.body["peers"]) != "[]" {
		t.Error(p.raw)
	}
	d.refused(422, "invalid", "PUT", "/processors/far", `{"deliver_as": "NONE"}`)
	if p := d.want(201, "PUT", "/processors/far", `{"deliver_as": "ADD"}`); p.str("deliver_as") != "ADD" {
		t.Error(p.raw)
	}
	if p := d.want(200, "PATCH", "/processors/far", `{"fair": true}`); p.str("deliver_as") != "ADD" {
		t.Error(p.raw)
	}
}
