package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// order is the data of an intent: to make tokens, or to pay.
type order struct {
	Mint   int    `json:"mint,omitempty"`
	To     string `json:"to,omitempty"`
	Amount int    `json:"amount,omitempty"`
}

// coin is a token.
type coin struct {
	Owner string `json:"owner"`
	Worth int    `json:"worth"`
	Salt  string `json:"salt"`
}

func (c coin) id() string { return hashOf(c.Owner, c.Worth, c.Salt) }

func hashOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Append(nil, parts...))
	return hex.EncodeToString(sum[:16])
}

// transfer is what was assembled of an order.
type transfer struct {
	Mint bool   `json:"mint,omitempty"`
	In   []coin `json:"in"`
	Out  []coin `json:"out"`
}

// event is one call of a transaction of the ledger that is final.
type event struct {
	Type, To string
}

// tokens is the service of the domain at all nodes. It keeps what it was told, and follows the ledger.
//
// An intent is three things there: a call of its own that nothing guards, so that a second one shows; for each token
// that it spends, that the token is there and is not spent; and each token that it makes.
type tokens struct {
	url    string
	ledger string

	mu       sync.Mutex
	delay    time.Duration // of an endorsement
	delayed  int           // endorsements
	coins    map[string]coin
	reserved map[string]string // coins, and the intent that was last assembled with them
	answers  map[string]any    // of assemblies, by key
	there    map[string]bool   // names on the ledger
	events   []event
	cursor   string
}

func newTokens(ledger string) (*tokens, error) {
	t := &tokens{ledger: ledger, coins: map[string]coin{}, reserved: map[string]string{}, answers: map[string]any{},
		there: map[string]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.url = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{node}/assemble", t.assemble)
	mux.HandleFunc("POST /{node}/sign", func(out http.ResponseWriter, _ *http.Request) {
		tell(out, map[string]any{"signature": "mine"})
	})
	mux.HandleFunc("POST /{node}/endorse", t.endorse)
	mux.HandleFunc("POST /{node}/prepare", t.prepare)
	mux.HandleFunc("POST /{node}/look", t.look)
	mux.HandleFunc("GET /{node}/height", t.height)
	go http.Serve(l, mux)
	return t, nil
}

func tell(out http.ResponseWriter, answer any) {
	out.Header().Set("Content-Type", "application/json")
	json.NewEncoder(out).Encode(answer)
}

func (t *tokens) slow(d time.Duration) {
	t.mu.Lock()
	t.delay = d
	t.mu.Unlock()
}

// delayedSoFar is how many endorsements it has delayed.
func (t *tokens) delayedSoFar() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.delayed
}

// follow reads the events of the ledger to their end. A page begins with the event of its cursor. t.mu is held.
func (t *tokens) follow(ctx context.Context) error {
	for {
		var page struct {
			Events []struct{ ID, Type, To string }
			Cursor string `json:"next_cursor"`
			More   bool   `json:"has_more"`
		}
		if err := t.ask(ctx, "/events?limit=1000&cursor="+url.QueryEscape(t.cursor), &page); err != nil {
			return err
		}
		for i, e := range page.Events {
			if i == 0 && t.cursor != "" {
				continue
			}
			t.events = append(t.events, event{e.Type, e.To})
			t.there[e.To] = true
		}
		if len(page.Events) > 0 {
			t.cursor = page.Cursor
		}
		if !page.More {
			return nil
		}
	}
}

func (t *tokens) ask(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, "GET", t.ledger+path, nil)
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("the ledger answers %d", a.StatusCode)
	}
	return json.NewDecoder(a.Body).Decode(into)
}

// assembly is a call that has an intent assembled.
type assembly struct {
	Key    string
	Intent struct {
		ID, Party string
		Data      order
	}
	Pending struct {
		Outputs []struct {
			ID   string
			Data coin
		}
		Spent []string
	}
}

func (t *tokens) assemble(out http.ResponseWriter, r *http.Request) {
	var a assembly
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer, known := t.answers[a.Key]; known {
		tell(out, answer)
		return
	}
	if err := t.follow(r.Context()); err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer := t.decide(a)
	t.answers[a.Key] = answer
	tell(out, answer)
}

// decide makes tokens, or chooses those to pay with.
func (t *tokens) decide(a assembly) any {
	made := transfer{Mint: a.Intent.Data.Mint > 0, In: []coin{}}
	pays := func(to string, worth int) {
		made.Out = append(made.Out, coin{to, worth, hashOf(a.Key, " ", len(made.Out))})
	}
	if made.Mint {
		for range a.Intent.Data.Mint {
			pays(a.Intent.Party, tokenWorth)
		}
	} else {
		have := 0
		for _, c := range t.usable(a) {
			if have < a.Intent.Data.Amount {
				have += c.Worth
				made.In = append(made.In, c)
			}
		}
		if have < a.Intent.Data.Amount {
			reason := fmt.Sprintf("the balance of %s is %d so far", a.Intent.Party, have)
			return map[string]any{"result": "PARK", "reason": reason, "resume": map[string]string{"after": "1s"}}
		}
		pays(a.Intent.Data.To, a.Intent.Data.Amount)
		if have > a.Intent.Data.Amount {
			pays(a.Intent.Party, have-a.Intent.Data.Amount)
		}
	}
	inputs, outputs := []string{}, []any{}
	for _, c := range made.In {
		inputs = append(inputs, c.id())
		t.reserved[c.id()] = a.Intent.ID
	}
	for _, c := range made.Out {
		_, node, _ := strings.Cut(c.Owner, "@")
		outputs = append(outputs, map[string]any{"id": c.id(), "data": c, "to": []string{node}})
		t.coins[c.id()] = c
	}
	return map[string]any{"result": "OK", "assembled": made, "inputs": inputs, "outputs": outputs, "plan": []any{
		map[string]any{"name": "owner", "type": "sign", "parties": []string{a.Intent.Party}},
		map[string]any{"name": "notaries", "type": "endorse", "threshold": 2,
			"parties": []string{"notary@alice", "notary@bob", "notary@carol"}}}}
}

// usable lists what somebody may pay with, first what the ledger has, last what another intent was assembled with.
func (t *tokens) usable(a assembly) (list []coin) {
	offered := map[string]bool{}
	for _, o := range a.Pending.Outputs {
		offered[o.ID] = true
	}
	for id, c := range t.coins {
		if c.Owner == a.Intent.Party && (t.there["coin."+id] || offered[id]) && !t.there["spent."+id] &&
			!slices.Contains(a.Pending.Spent, id) {
			list = append(list, c)
		}
	}
	rank := func(c coin) (n int) {
		if by := t.reserved[c.id()]; by != "" && by != a.Intent.ID {
			n += 2
		}
		if !t.there["coin."+c.id()] {
			n++
		}
		return n
	}
	slices.SortFunc(list, func(x, y coin) int {
		if d := rank(x) - rank(y); d != 0 {
			return d
		}
		return strings.Compare(x.id(), y.id())
	})
	return list
}

// endorse is a notary's: a transfer neither makes nor loses money.
func (t *tokens) endorse(out http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	delay := t.delay
	if delay > 0 {
		t.delayed++
	}
	t.mu.Unlock()
	time.Sleep(delay)
	var c struct {
		Assembled  transfer
		Signatures []any
	}
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	sum := 0
	for _, in := range c.Assembled.In {
		sum -= in.Worth
	}
	for _, o := range c.Assembled.Out {
		sum += o.Worth
	}
	if sum != 0 && !c.Assembled.Mint || len(c.Signatures) == 0 {
		tell(out, map[string]any{"revert_reason": fmt.Sprintf("it makes %d of nothing", sum)})
		return
	}
	tell(out, map[string]any{"endorsement": "yes"})
}

// prepare makes the public transaction.
func (t *tokens) prepare(out http.ResponseWriter, r *http.Request) {
	var p struct {
		Intent    struct{ ID string }
		Assembled transfer
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	calls := []map[string]string{{"to": "intent." + p.Intent.ID, "method": "note"}}
	for _, c := range p.Assembled.In {
		calls = append(calls, map[string]string{"to": "coin." + c.id(), "method": "require"},
			map[string]string{"to": "spent." + c.id(), "method": "create"})
	}
	for _, c := range p.Assembled.Out {
		calls = append(calls, map[string]string{"to": "coin." + c.id(), "method": "create"})
	}
	tell(out, map[string]any{"type": "TOKEN", "data": map[string]any{"calls": calls}})
}

// look says which intents the ledger has for good.
func (t *tokens) look(out http.ResponseWriter, r *http.Request) {
	var c struct{ Intents []string }
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.follow(r.Context()); err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	}
	items := []map[string]string{}
	for _, id := range c.Intents {
		state := "unknown"
		if t.there["intent."+id] {
			state = "fulfilled"
		}
		items = append(items, map[string]string{"state": state})
	}
	tell(out, map[string]any{"items": items})
}

func (t *tokens) height(out http.ResponseWriter, r *http.Request) {
	var h struct{ Height int64 }
	if err := t.ask(r.Context(), "/health", &h); err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	}
	tell(out, map[string]any{"height": h.Height})
}
