package work_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/verify"
)

// signers are the workers of several senders, one each. They keep their contract: a token takes effect once with a
// signer, which says so when it is asked. The proxy between them and Postern does not: it answers as it likes, before
// the effect or after it.
type signers struct {
	t *testing.T

	mu      sync.Mutex
	dice    *rand.Rand
	got     []signed          // calls in the order in which they were read
	effects []signed          // in the order in which they took place
	known   map[string]string // account and token -> hash
	servers map[string]*http.Server
}

// signed is one call that a signer has read, and how it was answered.
type signed struct {
	account, token, uid, queue string
	said                       string
}

// own are the answers by which a signer itself says that nothing was done.
var own = []string{"blocked"}

func newSigners(t *testing.T, seed uint64) *signers {
	s := &signers{
		t:       t,
		dice:    rand.New(rand.NewPCG(seed, seed)),
		known:   map[string]string{},
		servers: map[string]*http.Server{},
	}
	t.Cleanup(func() {
		for account := range s.servers {
			s.refuse(account)
		}
	})
	return s
}

// listen opens the port of a signer, a free one for addr "", and returns its address.
func (s *signers) listen(account, addr string) string {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var l net.Listener
	var err error
	for range 200 {
		if l, err = net.Listen("tcp", addr); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		s.t.Error(err)
		return addr
	}
	server := &http.Server{Handler: s.handler(account)}
	s.mu.Lock()
	s.servers[account] = server
	s.mu.Unlock()
	go server.Serve(l)
	return l.Addr().String()
}

// refuse closes the port and all connections of a signer.
func (s *signers) refuse(account string) {
	s.mu.Lock()
	server := s.servers[account]
	s.mu.Unlock()
	server.Close()
}

func (s *signers) handler(account string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dispatch/{type}", func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			TxData  struct{ UID string }
			Sender  struct{ Queue, AccountID string }
			Postern struct{ Token string }
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &call) != nil {
			return // cut off in mid-call
		}
		if call.Sender.AccountID != account {
			s.t.Errorf("the worker of %s was called for %s", account, call.Sender.AccountID)
		}
		say(w, s.decide(signed{account: account, token: call.Postern.Token,
			uid: call.TxData.UID, queue: call.Sender.Queue}))
	})
	mux.HandleFunc("POST /status/{type}", func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Token, Hash string }
		if json.NewDecoder(r.Body).Decode(&ask) != nil {
			return
		}
		s.mu.Lock()
		hash := ask.Hash
		if hash == "" {
			hash = s.known[account+" "+ask.Token]
		}
		s.mu.Unlock()
		if hash == "" {
			fmt.Fprint(w, `{"state":"unknown"}`)
			return
		}
		fmt.Fprintf(w, `{"state":"included","hash":%q,"block_height":"1"}`, hash)
	})
	return mux
}

// decide takes effect or not, and says how the call is answered.
func (s *signers) decide(c signed) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := c.account + " " + c.token
	all := []string{"blocked", "503", "502 html", "429", "close", "redirect", "done", "done", "done", "done", "done"}
	c.said = all[s.dice.IntN(len(all))]
	acts := c.said == "done" || c.said != "blocked" && c.said != "429" && s.dice.IntN(2) == 0
	if acts && s.known[key] == "" {
		s.known[key] = "0x" + strings.ReplaceAll(key, " ", "")
		s.effects = append(s.effects, c)
	}
	if c.said == "blocked" && s.known[key] != "" {
		c.said = "done"
	}
	s.got = append(s.got, c)
	return c.said
}

func say(w http.ResponseWriter, what string) {
	switch what {
	case "done":
		fmt.Fprint(w, `{"hash":"","done":{"ok":true},"error":null}`)
	case "blocked":
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":{"code":"BUSY","class":"blocked","message":"not now"}}`)
	case "503":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "502 html":
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, "<html>bad gateway</html>")
	case "429":
		w.WriteHeader(http.StatusTooManyRequests)
	case "redirect":
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(http.StatusSeeOther)
	default:
		panic(http.ErrAbortHandler)
	}
}

// Three senders of a pool serve many queues while what stands before them answers as it likes, refuses connections and
// closes them, and a fourth has no TLS. A token that one of them was called for goes to no other unless nothing
// can have been done, so that every transaction takes effect once, in the order of its queue.
func TestATokenIsSentByOneSender(t *testing.T) {
	h := newHouse(t)
	s := newSigners(t, 7)
	accounts := []string{"s1", "s2", "s3"}
	addr := map[string]string{}
	for _, a := range accounts {
		addr[a] = s.listen(a, "")
		_, err := h.s.PutSender(h.ctx, h.by, pg.Sender{Account: a, Pool: "p", WorkerURL: "http://" + addr[a]}, 0)
		h.must(err)
	}
	plain := pg.Sender{Account: "tls", Pool: "p", WorkerURL: "https://" + s.listen("tls", "")}
	_, err := h.s.PutSender(h.ctx, h.by, plain, 0)
	h.must(err)
	retries := 1000
	h.dispatcher("T", func(d *outbox.Dispatcher) {
		d.Pool, d.Retry.MaxRetries, d.Retry.Initial = "p", &retries, outbox.Duration(time.Millisecond)
	})
	h.engine("n1", nil)
	h.engine("n2", nil)
	var ids []outbox.ID
	for q := range 20 {
		var uids []string
		for i := range 4 {
			uids = append(uids, fmt.Sprintf("q%d-%d", q, i))
		}
		ids = append(ids, h.post(fmt.Sprintf("q%d", q), "T", uids...)...)
	}
	over := make(chan struct{})
	var pests sync.WaitGroup
	pests.Go(func() { // a sender that could not be reached is left alone for a second and more: not here
		for !closed(over) {
			_, err := h.s.Pool().Exec(h.ctx, `UPDATE postern.sender SET blocked_until = NULL, gate_failures = 0
				WHERE blocked_until IS NOT NULL AND account <> 'tls'`)
			h.check(err)
			time.Sleep(20 * time.Millisecond)
		}
	})
	pests.Go(func() { // each refuses connections for a while, in turn
		for i := 0; !closed(over); i++ {
			a := accounts[i%len(accounts)]
			time.Sleep(100 * time.Millisecond)
			s.refuse(a)
			time.Sleep(50 * time.Millisecond)
			s.listen(a, addr[a])
		}
	})
	h.await(ids, 2*time.Minute, outbox.DONE)
	close(over)
	pests.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	callers, answers := map[string]string{}, map[string]int{}
	for _, c := range s.got {
		answers[c.said]++
		if by := callers[c.token]; by != "" && by != c.account {
			t.Errorf("token %s of %s went to %s after %s", c.token, c.uid, c.account, by)
		}
		if !slices.Contains(own, c.said) {
			callers[c.token] = c.account
		}
	}
	once, last := map[string]string{}, map[string]string{}
	for _, c := range s.effects {
		if by := once[c.uid]; by != "" {
			t.Errorf("%s took effect with %s under token %s, and before as %s", c.uid, c.account, c.token, by)
		}
		once[c.uid] = c.account + " " + c.token
		if c.uid < last[c.queue] {
			t.Errorf("%s took effect after %s", c.uid, last[c.queue])
		}
		last[c.queue] = c.uid
	}
	if len(once) != len(ids) {
		t.Errorf("%d of %d transactions took effect", len(once), len(ids))
	}
	var refused, tls int
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT count(*) FILTER (WHERE code = 'connection_refused'),
			count(*) FILTER (WHERE code = 'tls')
		FROM postern.attempt`).Scan(&refused, &tls))
	if t.Logf("%d calls: %v; %d refused, %d without TLS", len(s.got),
		answers, refused, tls); tls == 0 || len(answers) < 7 {
		t.Error("not all that was to happen has happened")
	}
	h.holdsTrue()
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// check is must for goroutines.
func (h *house) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Errorf("%+v", err)
	}
}

// holdsTrue asks the database all that must hold.
func (h *house) holdsTrue() {
	h.t.Helper()
	found, err := verify.Violations(h.ctx, h.s.Pool())
	h.must(err)
	for _, v := range found {
		h.t.Error(v)
	}
}
