package httpapi_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
)

func TestAKeyIsShownOnceAndKeptAsAHash(t *testing.T) {
	d, root := closedDoor(t)
	d.want(201, "PUT", "/contexts/shop", `{}`, root)
	a := d.want(201, "POST", "/api-keys", `{"name": "till", "role": "executor", "only": ["post", "read"]}`, root, "Postern-Context: shop")
	secret := a.str("secret")
	if !regexp.MustCompile(`^postern_[a-z0-9]{8}_[a-z2-7]{52}$`).MatchString(secret) || a.str("context") != "shop" || a.str("prefix") != secret[8:16] {
		t.Fatal(a.raw)
	}
	var dump string
	if err := d.store.Pool().QueryRow(t.Context(), `SELECT string_agg(k::text, '') || (SELECT string_agg(a::text, '') FROM postern.audit a) FROM postern.api_key k`).Scan(&dump); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(dump, secret[17:]) {
		t.Error("the secret lies in the database")
	}
	for _, path := range []string{a.header.Get("Location"), "/api-keys"} {
		if g := d.want(200, "GET", path, "", root, "Postern-Context: shop"); strings.Contains(g.raw, secret[17:]) || !strings.Contains(g.raw, `"till"`) {
			t.Error(g.raw)
		}
	}
	// its context is known without being named; it is used, and that is noted
	key := "Authorization: Bearer " + secret
	if q := d.want(200, "GET", "/queues", "", key); q.body["items"] == nil {
		t.Error(q.raw)
	}
	if g := d.want(200, "GET", a.header.Get("Location"), "", root, "Postern-Context: shop"); g.body["last_used_at"] == nil {
		t.Error(g.raw)
	}
	d.refused(404, "not_found", "GET", "/queues", "", key, "Postern-Context: default")
	d.refused(404, "not_found", "GET", "/queues", "", key, "Postern-Context: nowhere")
	if f := d.refused(403, "forbidden", "PUT", "/queues/q", `{}`, key); !strings.Contains(f.str("detail"), "the role admin") {
		t.Error(f.raw)
	}
	// a transaction that the key posts carries its name
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`, root, "Postern-Context: shop")
	if p := d.want(201, "POST", "/transactions", `{"type": "pay"}`, key); p.str("actor") != a.str("actor") || p.str("context") != "shop" {
		t.Error(p.raw)
	}
}

func TestACredentialThatDoesNotHoldIsRefusedEverywhere(t *testing.T) {
	d, root := closedDoor(t)
	good := strings.TrimPrefix(root, "Authorization: ")
	for name, headers := range map[string][]string{
		"a wrong secret":   {root[:len(root)-1] + "3"},
		"unknown":          {"Authorization: Bearer postern_aaaaaaaa_0123456789012345678901234567890123456789012"},
		"malformed":        {"Authorization: Bearer postern_x"},
		"another kind":     {"Authorization: Basic cm9vdDpyb290"},
		"empty":            {"Authorization: Bearer "},
		"an unknown token": {"Authorization: Bearer abc"},
	} {
		for _, path := range []string{"/queues", "/livez", "/openapi.json", "/nowhere"} {
			if a := d.refused(401, "unauthenticated", "GET", path, "", headers...); a.header.Get("WWW-Authenticate") == "" || strings.Contains(a.raw, good[7:]) {
				t.Errorf("%s: %s", name, a.raw)
			}
		}
	}
	// a signature beside the key, without an input
	for _, path := range []string{"/queues", "/livez", "/openapi.json", "/nowhere"} {
		d.refused(400, "bad_signature_input", "GET", path, "", root, "Signature: sig1=:AAAA:")
	}
	// also in development mode
	dev := openDoor(t)
	dev.refused(401, "unauthenticated", "GET", "/livez", "", "Authorization: Bearer nonsense")
	dev.want(200, "GET", "/queues", "")
}

func TestDevelopmentModeUsesTheCredentialThatIsSent(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/contexts/shop", `{}`)
	a := d.want(201, "POST", "/api-keys", `{"name": "r", "role": "reader"}`, "Postern-Context: shop")
	key := "Authorization: Bearer " + a.str("secret")
	if a.str("created_by") != "dev" {
		t.Error(a.raw)
	}
	d.want(200, "GET", "/queues", "", key)
	d.refused(403, "forbidden", "PUT", "/queues/q", `{}`, key)
	d.want(201, "PUT", "/queues/q", `{}`)
}

func TestAKeyIsRotatedWithAnOverlapRevokedAndExpires(t *testing.T) {
	d, root := closedDoor(t)
	start := time.Now().UTC().Truncate(time.Second)
	now := start
	at := func(t time.Time) { now = t; d.store.SetNow(&now); time.Sleep(1100 * time.Millisecond) } // the cache has forgotten
	at(start)
	a := d.want(201, "POST", "/api-keys", `{"name": "k", "role": "admin", "expires_at": "`+start.Add(10*time.Hour).Format(time.RFC3339)+`"}`, root)
	id := a.str("id")
	first := "Authorization: Bearer " + a.str("secret")
	b := d.want(201, "POST", "/api-keys/"+id+"/rotate", `{"overlap": "1h"}`, root)
	second := "Authorization: Bearer " + b.str("secret")
	if first == second || b.str("prefix") != a.str("prefix") || b.str("actor") != a.str("actor") || b.str("previous_until") != start.Add(time.Hour).Format(time.RFC3339) {
		t.Error(b.raw)
	}
	d.want(200, "GET", "/queues", "", first)
	d.want(200, "GET", "/queues", "", second)
	at(start.Add(61 * time.Minute))
	d.refused(401, "unauthenticated", "GET", "/queues", "", first)
	d.want(200, "GET", "/queues", "", second)
	d.want(201, "POST", "/api-keys/"+id+"/rotate", "", root)
	d.refused(401, "unauthenticated", "GET", "/queues", "", second) // no overlap: at once
	d.refused(422, "invalid", "POST", "/api-keys/"+id+"/rotate", `{"overlap": "-1s"}`, root)

	c := d.want(201, "POST", "/api-keys", `{"name": "c", "role": "reader", "expires_at": "`+now.Add(time.Hour).Format(time.RFC3339)+`"}`, root)
	third := "Authorization: Bearer " + c.str("secret")
	d.want(200, "GET", "/queues", "", third)
	at(now.Add(time.Hour))
	d.refused(401, "unauthenticated", "GET", "/queues", "", third)
	d.refused(422, "invalid", "POST", "/api-keys", `{"name": "c", "role": "reader", "expires_at": "2001-01-01T00:00:00Z"}`, root)
	d.refused(412, "precondition_failed", "DELETE", "/api-keys/"+id, "", root, `If-Match: "1"`)
	d.want(204, "DELETE", "/api-keys/"+id, "", root)
	d.refused(404, "not_found", "GET", "/api-keys/"+id, "", root)
}

// A rotation whose answer is lost is made again, and takes no secret from the clients: each holds as long as was said.
// One with no overlap ends all before.
func TestARotationOfAKeyThatIsRepeatedKeepsWhatClientsHave(t *testing.T) {
	d, root := closedDoor(t)
	start := time.Now().UTC().Truncate(time.Second)
	now := start
	at := func(t time.Time) {
		now = t
		d.store.SetNow(&now)
		time.Sleep(1100 * time.Millisecond) // the cache has forgotten
	}
	at(start)
	first, _, id := d.key(root, "system", "admin")
	rotate := func(by, body string) (string, answer) {
		t.Helper()
		a := d.want(201, "POST", "/api-keys/"+id+"/rotate", body, by)
		return "Authorization: Bearer " + a.str("secret"), a
	}
	lost, _ := rotate(root, `{"overlap": "2h"}`)
	later, a := rotate(first, `{"overlap": "1h"}`) // also a lever of the key itself asks for its secret
	if got, want := a.str("previous_until"), start.Add(2*time.Hour).Format(time.RFC3339); got != want {
		t.Errorf("secrets from before hold until %s, want %s", got, want)
	}
	for _, secret := range []string{first, lost, later} {
		d.want(200, "GET", "/queues", "", secret)
	}
	at(start.Add(61 * time.Minute))
	d.want(200, "GET", "/queues", "", first)
	d.refused(401, "unauthenticated", "GET", "/queues", "", lost)
	at(start.Add(119 * time.Minute))
	last, _ := rotate(first, `{"overlap": "1h"}`)
	at(start.Add(121 * time.Minute))
	d.refused(401, "unauthenticated", "GET", "/queues", "", first)
	for _, secret := range []string{later, last} {
		d.want(200, "GET", "/queues", "", secret)
	}
	last, a = rotate(last, "")
	if a.body["previous_until"] != nil {
		t.Errorf("without an overlap: %s", a.raw)
	}
	d.refused(401, "unauthenticated", "GET", "/queues", "", later)
	for range 21 {
		rotate(root, `{"overlap": "1h"}`)
	}
	d.want(200, "GET", "/queues", "", last)
	// it would end last
	r := d.refused(409, "wrong_state", "POST", "/api-keys/"+id+"/rotate", `{"overlap": "1h"}`, root)
	if !strings.Contains(r.raw, "twenty older secrets of a key at most") {
		t.Error(r.raw)
	}
	d.want(200, "GET", "/queues", "", last)
	rotate(root, "")
	d.refused(401, "unauthenticated", "GET", "/queues", "", last)
}

// A key that one process revokes is refused by another one soon.
func TestARevokedKeyIsRefusedByOtherProcesses(t *testing.T) {
	d, root := closedDoor(t)
	key, _, id := d.key(root, "default", "reader")
	other := httptest.NewServer(httpapi.New(httpapi.Config{Store: d.store, Ingester: pg.NewIngester(d.store.Store), Auth: "required"}).Handler())
	t.Cleanup(other.Close)
	there := &door{t: t, url: other.URL}
	there.want(200, "GET", "/queues", "", key)
	d.want(204, "DELETE", "/api-keys/"+id, "", root, "Postern-Context: default")
	d.refused(401, "unauthenticated", "GET", "/queues", "", key)
	revoked := time.Now()
	for there.call("GET", "/queues", "", key).status != 401 {
		if time.Since(revoked) > 30*time.Second { // 2 s, where the machine has time
			t.Fatal("it still holds after 30 s")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAKeyIsMadeOnceForOneIdempotencyKey(t *testing.T) {
	d, root := closedDoor(t)
	a := d.want(201, "POST", "/api-keys", `{"name": "k", "role": "reader"}`, root, "Idempotency-Key: once")
	b := d.want(200, "POST", "/api-keys", `{"name": "k", "role": "reader"}`, root, "Idempotency-Key: once")
	if b.str("id") != a.str("id") || b.body["secret"] != nil || b.header.Get("Idempotent-Replay") != "true" {
		t.Error(b.raw)
	}
	d.refused(409, "idempotency_conflict", "POST", "/api-keys", `{"name": "k", "role": "admin"}`, root, "Idempotency-Key: once")
	d.want(201, "POST", "/api-keys", `{"name": "k", "role": "admin"}`, root, "Idempotency-Key: once", "Postern-Context: default")
}

func TestANarrowedKeyCannotMakeAWiderOne(t *testing.T) {
	d, root := closedDoor(t)
	key, _, _ := d.key(root, "default", "admin", "operate", "read")
	d.refused(403, "forbidden", "POST", "/api-keys", `{"name": "k", "role": "admin"}`, key)
	d.refused(403, "forbidden", "POST", "/api-keys", `{"name": "k", "role": "admin", "only": ["post"]}`, key)
	read := d.want(201, "POST", "/api-keys", `{"name": "k", "role": "admin", "only": ["read"]}`, key)
	_, _, wide := d.key(root, "default", "admin")
	d.refused(403, "forbidden", "POST", "/api-keys/"+wide+"/rotate", "", key) // it would be shown the secret of more
	d.want(201, "POST", "/api-keys/"+read.str("id")+"/rotate", "", key)
}

func TestTheFirstKeyIsStoredOnce(t *testing.T) {
	d, root := closedDoor(t)
	prefix, hash, _ := httpapi.ParseKey("postern_anotherk_0123456789012345678901234567890123456789012")
	if stored, err := d.store.Actors.BootstrapKey(t.Context(), prefix, hash); err != nil || stored {
		t.Error("a second key came in although system has an admin key", err)
	}
	if a := d.want(200, "GET", "/audit?action=create", "", root); len(a.body["items"].([]any)) != 1 || !strings.Contains(a.raw, `"actor":"bootstrap"`) {
		t.Error(a.raw)
	}
}
