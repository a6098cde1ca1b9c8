package app_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pgtest"
)

// strait is two installations that know each other as near and far. Between the two is a wire: near calls far, and far
// never calls near.
type strait struct {
	t         *testing.T
	near, far *shore
	key       ed25519.PrivateKey // of the actor dev, at both
	cut       atomic.Bool        // calls do not arrive
	swallow   atomic.Int32       // so many answers do not arrive, though their calls did
	twice     atomic.Bool        // each call arrives twice
	refs      int
}

// shore is one installation.
type shore struct {
	url string
	db  *pgtest.DB
	id  string
}

func newStrait(t *testing.T) *strait {
	t.Helper()
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &strait{t: t, key: key, near: newShore(t, public), far: newShore(t, public)}
	wire := httptest.NewServer(s.wire())
	t.Cleanup(wire.Close)
	want(t, 201, "PUT", s.far.url+"/peers/near", fmt.Sprintf(`{"secret": %q}`, wireSecret))
	want(t, 201, "PUT", s.near.url+"/peers/far", fmt.Sprintf(`{"secret": %q, "url": %q}`, wireSecret,
		wire.URL+"/contexts/default/peers/near"))
	s.far.id = fmt.Sprint(want(t, 200, "GET", s.far.url+"/contexts/default/peers/near/health", "")["installation"])
	return s
}

func newShore(t *testing.T, key ed25519.PublicKey) *shore {
	t.Helper()
	return newShoreWith(t, key, map[string]string{})
}

// newShoreWith is newShore with settings.
func newShoreWith(t *testing.T, key ed25519.PublicKey, environ map[string]string) *shore {
	t.Helper()
	db := pgtest.New(t)
	pgtest.Apart(t, db.Pool)
	environ["DATABASE_URL"] = db.URL
	s := &shore{db: db, url: clockedWith(t, environ)}
	s.knows(t, key)
	return s
}

// knows gives the actor dev a key.
func (s *shore) knows(t *testing.T, key ed25519.PublicKey) {
	t.Helper()
	text := base64.StdEncoding.EncodeToString(key)
	actor := `INSERT INTO postern.actor (actor_id) VALUES ('dev') ON CONFLICT DO NOTHING`
	if _, err := s.db.Pool.Exec(t.Context(), actor); err != nil {
		t.Fatal(err)
	}
	sql := `INSERT INTO postern.actor_key (public_key, actor_id, slot) VALUES (decode($1, 'base64'), 'dev', 1)`
	if _, err := s.db.Pool.Exec(t.Context(), sql, text); err != nil { // keys are a part of their actor
		sql = `UPDATE postern.actor SET public_keys = ARRAY[$1] WHERE actor_id = 'dev'`
		if _, err = s.db.Pool.Exec(t.Context(), sql, text); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *strait) wire() http.Handler {
	to := func() *url.URL {
		u, err := url.Parse(s.far.url)
		if err != nil {
			panic(err)
		}
		return u
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to()) }}
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if s.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		body, _ := io.ReadAll(r.Body)
		again := func() *http.Request {
			n := r.Clone(r.Context())
			n.Body = io.NopCloser(strings.NewReader(string(body)))
			return n
		}
		if s.twice.Load() {
			proxy.ServeHTTP(httptest.NewRecorder(), again())
		}
		if strings.HasSuffix(r.URL.Path, "/messages") && s.swallow.Add(-1) >= 0 {
			proxy.ServeHTTP(httptest.NewRecorder(), again())
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(out, again())
	})
}

// sends posts a message to far, signed by a key, and returns where it is at near.
func (s *strait) sends(key ed25519.PrivateKey, fields map[string]any) string {
	s.t.Helper()
	m := want(s.t, 201, "POST", s.near.url+"/messages", s.signs(key, fields))
	return fmt.Sprint(s.near.url, "/messages/", m["id"])
}

// signs is what is posted of a message to far.
func (s *strait) signs(key ed25519.PrivateKey, fields map[string]any) string {
	s.t.Helper()
	s.refs++
	signed := map[string]any{
		"v": 1, "audience": message.Audience{Installation: s.far.id, Context: "default", Peer: "near"},
		"caller_key": base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)),
		"created_at": time.Now().UTC(), "ref": s.refs,
	}
	for k, v := range fields {
		signed[k] = v
	}
	payload, err := json.Marshal(signed)
	if err != nil {
		s.t.Fatal(err)
	}
	envelope, err := message.Seal(payload, key)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf(`{"to": {"peer": "far"}, "envelope": %s}`, envelope)
}

func (s *strait) chats(text string) string {
	return s.sends(s.key, map[string]any{"message_type": "chat", "message": text})
}

// becomes waits until a message has a status.
func (s *strait) becomes(path, status string) map[string]any {
	s.t.Helper()
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		m := want(s.t, 200, "GET", path, "")
		if m["status"] == status {
			return m
		}
		if time.Now().After(until) {
			why := want(s.t, 200, "GET", path+"/why", "")
			s.t.Fatalf("%s is %v (%v), want %s: %v", path, m["status"], m["error"], status, why)
		}
	}
}

// delivered waits until far has a message.
func (s *strait) delivered(path string) {
	s.t.Helper()
	for want(s.t, 200, "GET", path, "")["delivered_at"] == nil {
		time.Sleep(20 * time.Millisecond)
	}
}

// receives takes messages of far's msg_in, each with its fence.
func (s *strait) receives(max int) (list []map[string]any) {
	s.t.Helper()
	status, text := send(s.t, "POST", s.far.url+"/messages:receive", fmt.Sprintf(`{"max": %d, "lease": "30s"}`, max))
	if status == 204 {
		return nil
	}
	var v struct {
		Messages []map[string]any `json:"messages"`
		Items    []map[string]any `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != 200 {
		s.t.Fatal(status, text, err)
	}
	return append(v.Messages, v.Items...)
}

// says lets the receiver of a message at far say something of it.
func (s *strait) says(m map[string]any, verb, body string) {
	s.t.Helper()
	to := fmt.Sprint(s.far.url, "/messages/", m["id"], "/", verb)
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", to, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Postern-Fence", fmt.Sprintf("%.0f", m["fence"]))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 200 {
		s.t.Fatalf("%s: %d %s", verb, res.StatusCode, text)
	}
}

// A chat goes to another installation, is received and answered there, and the answer comes back.
func TestAChatGoesToAnotherInstallationAndIsAnswered(t *testing.T) {
	s := newStrait(t)
	at := s.chats("are you there?")
	s.delivered(at)
	list := s.receives(10)
	if len(list) != 1 || list[0]["message"] != "are you there?" || list[0]["peer"] != "near" {
		t.Fatal(list)
	}
	s.says(list[0], "ack", "")
	s.becomes(at, "acknowledged")
	s.says(list[0], "reply", `{"message": "yes", "message_format_type": "text"}`)
	m := s.becomes(at, "processed")
	if reply, _ := m["reply"].(map[string]any); reply["message"] != "yes" {
		t.Error(m)
	}
}

// A message of far that answers one of near names it as near does, whatever it is called at far.
func TestAMessageThatAnswersOneOfAPeerNamesItThere(t *testing.T) {
	s := newStrait(t)
	at := s.chats("are you there?")
	s.delivered(at)
	asked := s.receives(1)[0]
	want(t, 200, "PUT", s.far.url+"/peers/near", fmt.Sprintf(`{"url": %q}`, s.near.url+"/contexts/default/peers/far"))
	id := fmt.Sprint(want(t, 200, "GET", s.near.url+"/contexts/default/peers/far/health", "")["installation"])
	body := s.signs(s.key, map[string]any{"message_type": "chat", "message": "yes", "reply_to": asked["id"],
		"audience": message.Audience{Installation: id, Context: "default", Peer: "far"}})
	want(t, 201, "POST", s.far.url+"/messages", strings.Replace(body, `{"peer": "far"}`, `{"peer": "near"}`, 1))
	find := s.near.url + "/messages?box=in&reply_to=" + path.Base(at)
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list := want(t, 200, "GET", find, "")["items"].([]any)
		if len(list) == 1 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("no message answers it: ", want(t, 200, "GET", s.near.url+"/messages?box=in", ""))
		}
	}
}

// What the wire doubles, loses and holds up is one message each, in the order in which it was written.
func TestMessagesComeOnceAndInOrderOverABadWire(t *testing.T) {
	s := newStrait(t)
	s.twice.Store(true)
	var paths []string
	for i := range 12 {
		if i%4 == 0 {
			s.swallow.Store(1)
		}
		if i == 6 {
			s.cut.Store(true)
			time.AfterFunc(time.Second, func() { s.cut.Store(false) })
		}
		paths = append(paths, s.chats(fmt.Sprint(i)))
	}
	for _, p := range paths {
		s.delivered(p)
	}
	for i, m := range s.receives(100) {
		if m["message"] != fmt.Sprint(i) {
			t.Errorf("message %d says %v", i, m["message"])
		}
		s.says(m, "processed", "")
	}
	for _, p := range paths {
		s.becomes(p, "processed")
	}
}

// A message that is signed for another audience than the peer that it is posted for is refused where it is posted: once
// the peer was met, its installation is known.
func TestAMessageForAPeerIsSignedForThatPeer(t *testing.T) {
	s := newStrait(t)
	s.delivered(s.chats("hello"))
	ours := message.Audience{Installation: s.far.id, Context: "default", Peer: "near"}
	for _, change := range []func(*message.Audience){
		func(a *message.Audience) { a.Installation = s.near.id },
		func(a *message.Audience) { a.Context = "system" },
		func(a *message.Audience) { a.Peer = "" },
	} {
		us := ours
		change(&us)
		body := s.signs(s.key, map[string]any{"message_type": "chat", "message": "hello", "audience": us})
		m := want(t, 401, "POST", s.near.url+"/messages", body)
		if m["code"] != "bad_actor_signature" || !strings.Contains(fmt.Sprint(m["errors"]), "/envelope") {
			t.Error(m)
		}
	}
}

// A secret that is changed at one end blocks what waits, and it goes on once both ends have it. An envelope of a key
// that far does not know ends its message alone.
func TestOneMessageIsRefusedAndAnotherWaits(t *testing.T) {
	s := newStrait(t)
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	public := stranger.Public().(ed25519.PublicKey)
	s.near.second(t, public)
	bad := s.sends(stranger, map[string]any{"message_type": "chat", "message": "who am I?"})
	next := s.chats("I am dev")
	if m := s.becomes(bad, "error"); !strings.Contains(fmt.Sprint(m["error"]), "bad_actor_signature") {
		t.Error(m)
	}
	s.delivered(next)

	const another = "whsec_YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk="
	want(t, 200, "PATCH", s.near.url+"/peers/far", fmt.Sprintf(`{"secret": %q}`, another))
	waits := s.chats("do you still know me?")
	for p := map[string]any(nil); p == nil; time.Sleep(20 * time.Millisecond) {
		p, _ = want(t, 200, "GET", s.near.url+"/peers/far", "")["refuses"].(map[string]any)
		if p != nil && p["code"] != "peer_unauthenticated" {
			t.Fatal(p)
		}
	}
	why := ""
	end := time.Now().Add(60 * time.Second)
	for ; !strings.Contains(why, "peer_refused"); time.Sleep(20 * time.Millisecond) {
		if why = fmt.Sprint(want(t, 200, "GET", waits+"/why", "")); time.Now().After(end) {
			t.Fatal(why) // it waits for the look at the rights of its sender at first
		}
	}
	if !strings.Contains(why, "/peers/far") {
		t.Error(why)
	}
	want(t, 200, "PATCH", s.far.url+"/peers/near", fmt.Sprintf(`{"secret": %q}`, another))
	s.delivered(waits)
	if p := want(t, 200, "GET", s.near.url+"/peers/far", ""); p["refuses"] != nil {
		t.Error(p)
	}
}

// second gives the actor dev a second key.
func (s *shore) second(t *testing.T, key ed25519.PublicKey) {
	t.Helper()
	text := base64.StdEncoding.EncodeToString(key)
	sql := `INSERT INTO postern.actor_key (public_key, actor_id, slot) VALUES (decode($1, 'base64'), 'dev', 2)`
	if _, err := s.db.Pool.Exec(t.Context(), sql, text); err != nil {
		sql = `UPDATE postern.actor SET public_keys = public_keys || $1::text WHERE actor_id = 'dev'`
		if _, err = s.db.Pool.Exec(t.Context(), sql, text); err != nil {
			t.Fatal(err)
		}
	}
}

// A peer that was restored does not have a message any more: it is delivered again, and answered.
func TestARestoredPeerIsBroughtItsMessagesAgain(t *testing.T) {
	s := newStrait(t)
	at := s.chats("remember me")
	s.delivered(at)
	for _, sql := range []string{`DELETE FROM postern.message_step`, `DELETE FROM postern.message`} {
		if _, err := s.far.db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var list []map[string]any
	for until := time.Now().Add(60 * time.Second); len(list) == 0; time.Sleep(50 * time.Millisecond) {
		if list = s.receives(10); time.Now().After(until) {
			t.Fatal("it was not brought again")
		}
	}
	s.says(list[0], "processed", "")
	s.becomes(at, "processed")
}

// A job goes to another installation, a runner executes it there, and its result comes back.
func TestAJobGoesToAnotherInstallation(t *testing.T) {
	s := newStrait(t)
	job := map[string]any{"ref": 1, "script": "1", "script_type": "python"}
	at := s.sends(s.key, map[string]any{"message_type": "job", "job": []any{job}})
	s.becomes(at, "acknowledged")
	b := &jobBench{t: t, url: s.far.url}
	r := b.runner("r")
	r.does(r.takes(1), map[string]string{"a": "1"})
	m := s.becomes(at, "processed")
	if reply := fmt.Sprint(m["reply"]); !strings.Contains(reply, "a:1") {
		t.Error(m)
	}
}

// A message that its sender takes back is stopped at the other installation, and what that says of it afterwards
// changes nothing.
func TestAMessageThatIsTakenBackIsStoppedAtThePeer(t *testing.T) {
	s := newStrait(t)
	at := s.chats("never mind")
	s.delivered(at)
	list := s.receives(1)
	if len(list) != 1 {
		t.Fatal(list)
	}
	want(t, 200, "POST", at+"/cancel", `{"reason": "I was wrong"}`)
	there := fmt.Sprint(s.far.url, "/messages/", list[0]["id"])
	s.becomes(there, "error")
	if m := s.becomes(at, "error"); !strings.Contains(fmt.Sprint(m["error"]), "I was wrong") {
		t.Error(m)
	}
}

// A peer that is restored to a time before a message was taken back there is told of that once more, though nothing is
// open at it: what it has forgotten would stand for ever.
func TestARestoredPeerForgetsNothingThatWasTakenBack(t *testing.T) {
	s := newStrait(t)
	at := s.chats("hello")
	s.delivered(at)
	restore := s.backsUpFar()
	want(t, 200, "POST", at+"/cancel", "")
	s.farIs("error")
	restore("dispatched")
	s.farIs("error")
}

// One that is restored to a time between the acknowledgement of a message and its answer is told that it has ended:
// nothing is asked about it any more, and it would stand for ever.
func TestARestoredPeerKeepsNoMessageOpenThatWasAnswered(t *testing.T) {
	s := newStrait(t)
	at := s.chats("hello")
	s.delivered(at)
	m := s.receives(1)[0]
	s.says(m, "ack", "")
	s.becomes(at, "acknowledged")
	restore := s.backsUpFar()
	s.says(m, "reply", `{"message": "yes", "message_format_type": "text"}`)
	was := s.becomes(at, "processed")
	restore("acknowledged")
	s.farIs("error")
	if is := want(t, 200, "GET", at, ""); fmt.Sprint(is) != fmt.Sprint(was) {
		t.Errorf("%v, want it as it was: %v", is, was)
	}
}

// backsUpFar keeps the messages of the other installation. restore brings them back into another life of its store,
// where the only one has a status, and has the peer asked at once, as it is once a minute.
func (s *strait) backsUpFar() (restore func(status string)) {
	s.t.Helper()
	exec := func(db *pgxpool.Pool, list ...string) {
		s.t.Helper()
		for _, sql := range list {
			if _, err := db.Exec(s.t.Context(), sql); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	exec(s.far.db.Pool, `CREATE TABLE backup AS SELECT * FROM postern.message`,
		`CREATE TABLE backup_step AS SELECT * FROM postern.message_step`)
	return func(status string) {
		s.t.Helper()
		exec(s.far.db.Pool, `DELETE FROM postern.message_step`, `DELETE FROM postern.message`,
			`INSERT INTO postern.message SELECT * FROM backup`,
			`INSERT INTO postern.message_step SELECT * FROM backup_step`, `UPDATE postern.store SET life = life + 1`)
		s.farIs(status)
		exec(s.near.db.Pool, `UPDATE postern.peer SET followed_until = followed_until - interval '1 hour'`)
	}
}

// farIs waits until the only message that was sent to the other installation has a status there.
func (s *strait) farIs(status string) {
	s.t.Helper()
	var is string
	for end := time.Now().Add(time.Minute); is != status && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := s.far.db.Pool.QueryRow(s.t.Context(), `SELECT status FROM postern.message WHERE type = 'chat'`).
			Scan(&is); err != nil {
			s.t.Fatal(err)
		}
	}
	if is != status {
		s.t.Fatalf("the message is %s at the peer, want %s", is, status)
	}
}

// A receiver at the other installation that answers behind a deadline here, and before it is told to stop, is heard:
// its answer is kept as late.
func TestAnAnswerBehindADeadlineIsKeptAsLate(t *testing.T) {
	s := newStrait(t)
	at := s.sends(s.key, map[string]any{"message_type": "chat", "message": "quick!", "timeout_ack": 2})
	s.delivered(at)
	s.cut.Store(true)
	s.says(s.receives(1)[0], "reply", `{"message": "yes", "message_format_type": "text"}`)
	m := s.becomes(at, "error")
	s.cut.Store(false)
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		late := fmt.Sprint(want(t, 200, "GET", at+"/history", "")["late"])
		if strings.Contains(late, "ResultReceived") && strings.Contains(late, "yes") {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the answer is kept nowhere: ", late, m)
		}
	}
	if m := want(t, 200, "GET", at, ""); fmt.Sprint(m["error"].(map[string]any)["code"]) != "timeout_ack" {
		t.Error(m)
	}
}
