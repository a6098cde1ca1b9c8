package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/api/domain"
	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/safe"
)

// tokenOrder is the data of an intent of the token domain.
type tokenOrder struct {
	Do      string  `json:"do"` // mint or pay
	Amounts []int64 `json:"amounts"`
	To      string  `json:"to,omitempty"`    // the receiver: name@node
	Wait    bool    `json:"wait,omitempty"`  // until there is money enough, instead of failing
	Fault   string  `json:"fault,omitempty"` // that goes wrong on the way
}

// Faults of a payment.
const (
	refusedOnce  = "refused_once" // the notary does not endorse it the first time
	revertsOnce  = "reverts_once" // the ledger reverts it the first time
	revertsEach  = "reverts_each" // the ledger reverts it each time
	revertReason = "the demo wants it to fail"
)

// token is what somebody owns. The ledger knows its hash, which tells nothing of it.
type token struct {
	Owner  string `json:"owner"` // name@node
	Amount int64  `json:"amount"`
	Salt   string `json:"salt"`
}

// id is the name of a token on the ledger.
func (t token) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", t.Owner, t.Amount, t.Salt))
	return hex.EncodeToString(sum[:20])
}

// tokenTransfer is what was assembled of an order: the tokens that go, and those that come.
type tokenTransfer struct {
	Intent string  `json:"intent"`
	Do     string  `json:"do"`
	Fault  string  `json:"fault,omitempty"`
	In     []token `json:"in"`
	Out    []token `json:"out"`
}

// Names on the ledger, behind the name of the run: an intent that was carried out, a token, one that was spent.
const (
	ofIntent = "intent."
	ofToken  = "token."
	ofSpent  = "spent."
)

// wallet is the service of the token domain at one node: it knows the tokens of its owners, and follows the ledger.
type wallet struct {
	node   string
	prefix string // of names on the ledger
	notary string // the node of the notary
	ledger *devnet.Client
	key    ed25519.PrivateKey
	all    map[string]*wallet // of all nodes: their public keys, and where a payer hands a token to
	url    string
	stop   func()

	mu       sync.Mutex
	unknown  map[string]bool // parties that have no address yet
	tokens   map[string]token
	reserved map[string]string // tokens, by id, and the intent that was last assembled with them
	began    map[string]string // what went wrong once already, by what and intent: under which key
	answers  map[string]any    // of assemblies, by key: the same key gets the same answer
	on       map[string]uint64 // names on the ledger, and since which block
	cursor   string
}

func newWallet(node, prefix, notary string, ledger *devnet.Client, all map[string]*wallet) (*wallet, error) {
	_, key, err := ed25519.GenerateKey(nil)
	w := &wallet{node: node, prefix: prefix, notary: notary, ledger: ledger, key: key, all: all,
		unknown: map[string]bool{}, tokens: map[string]token{}, reserved: map[string]string{},
		began: map[string]string{}, answers: map[string]any{}, on: map[string]uint64{}}
	all[node] = w
	return w, err
}

// serve answers calls until it is stopped. All wallets are there by then.
func (w *wallet) serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	service := domain.Service[tokenOrder]{Assemble: w.assemble, Sign: w.sign, Endorse: w.endorse, Prepare: w.prepare,
		Look: w.look, Height: w.height}
	server := &http.Server{Handler: service.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go safe.Run("wallet", func() { defer close(served); _ = server.Serve(l) }) // it ends when it is closed
	w.url, w.stop = "http://"+l.Addr().String(), func() { _ = server.Close(); <-served }
	return nil
}

// follow reads the event log of the ledger to its end: it holds what is final.
func (w *wallet) follow(ctx context.Context) error {
	for {
		page, err := w.ledger.Events(ctx, w.cursor, 1000)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if name, ours := strings.CutPrefix(e.To, w.prefix); ours && e.Type == "create" {
				w.on[name] = e.Checkpoint
			}
		}
		if w.cursor = page.NextCursor; !page.HasMore {
			return nil
		}
	}
}

// meet gives a party an address.
func (w *wallet) meet(party string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unknown, party)
}

// receive takes a token that somebody pays with. It is money once the ledger has it.
func (w *wallet) receive(t token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[t.id()] = t
}

// assemble makes tokens, or chooses those to pay with. The payer hands each token to its next owner, which is nothing
// that the ledger or Postern does.
func (w *wallet) assemble(ctx context.Context, a domain.Assembly[tokenOrder]) (domain.Assembled, error) {
	made, err := w.assembled(ctx, a)
	if err != nil {
		return domain.Assembled{}, err
	}
	out := domain.Assembled{Assembled: made, Plan: []domain.Attestation{
		{Name: "owner", Type: domain.Sign, Parties: []string{a.Party}},
		{Name: "notary", Type: domain.Endorse, Parties: []string{"notary@" + w.notary}},
	}}
	for _, t := range made.In {
		out.Inputs = append(out.Inputs, t.id())
	}
	for _, t := range made.Out {
		out.Outputs = append(out.Outputs, domain.Output{ID: t.id(), Data: t, To: []string{nodeOf(t.Owner)}})
		if at := w.all[nodeOf(t.Owner)]; at != nil {
			at.receive(t)
		}
	}
	return out, nil
}

func nodeOf(party string) string { return party[strings.LastIndexByte(party, '@')+1:] }

func (w *wallet) assembled(ctx context.Context, a domain.Assembly[tokenOrder]) (*tokenTransfer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch before := w.answers[a.Key].(type) {
	case *tokenTransfer:
		return before, nil
	case error:
		return nil, before
	}
	if err := w.follow(ctx); err != nil {
		return nil, err // it is no answer: the same key is asked again
	}
	made, err := w.decide(a)
	if w.answers[a.Key] = made; err != nil {
		w.answers[a.Key] = err
	}
	return made, err
}

// decide says what an order makes of the tokens that there are.
func (w *wallet) decide(a domain.Assembly[tokenOrder]) (*tokenTransfer, error) {
	made := &tokenTransfer{Intent: a.ID, Do: a.Data.Do, Fault: a.Data.Fault}
	pays := func(to string, amount int64) {
		salt := sha256.Sum256(fmt.Appendf(w.key.Seed(), "%s %d", a.Key, len(made.Out)))
		made.Out = append(made.Out, token{to, amount, hex.EncodeToString(salt[:12])})
	}
	if a.Data.Do == "mint" {
		for _, amount := range a.Data.Amounts {
			pays(a.Party, amount)
		}
		return made, nil
	}
	if w.unknown[a.Data.To] {
		return nil, domain.Park(a.Data.To+" has no address yet", 0)
	}
	wants, have := a.Data.Amounts[0], int64(0)
	for _, t := range w.usable(a) {
		if have < wants {
			have += t.Amount
			made.In = append(made.In, t)
		}
	}
	switch {
	case have < wants && a.Data.Wait:
		return nil, domain.Park(fmt.Sprintf("the balance of %s is %d so far", a.Party, have), time.Second)
	case have < wants:
		return nil, domain.Revert(fmt.Sprintf("the balance of %s is %d, less than %d", a.Party, have, wants))
	}
	for _, t := range made.In {
		w.reserved[t.id()] = a.ID
	}
	if pays(a.Data.To, wants); have > wants {
		pays(a.Party, have-wants)
	}
	return made, nil
}

// usable lists the tokens that somebody may pay with, the best first: those that the ledger has before those that are
// on their way, and those last that another intent was assembled with, since a coordinator that was killed may have
// that one on its way.
func (w *wallet) usable(a domain.Assembly[tokenOrder]) []token {
	offered := map[string]bool{}
	for _, o := range a.Pending.Outputs {
		var t token
		if json.Unmarshal(o.Data, &t) == nil && t.id() == o.ID {
			offered[o.ID], w.tokens[o.ID] = true, t
		}
	}
	rank := func(id string) (n int) {
		if by := w.reserved[id]; by != "" && by != a.ID {
			n += 2
		}
		if w.on[ofToken+id] == 0 {
			n++
		}
		return n
	}
	var ids []string
	for id, t := range w.tokens {
		there := w.on[ofToken+id] > 0 || offered[id]
		if t.Owner == a.Party && there && w.on[ofSpent+id] == 0 && !slices.Contains(a.Pending.Spent, id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	list := make([]token, 0, len(ids))
	for _, id := range ids {
		list = append(list, w.tokens[id])
	}
	return list
}

// sign signs for an owner of this node.
func (w *wallet) sign(_ context.Context, t domain.Ticket) (any, error) {
	return hex.EncodeToString(ed25519.Sign(w.key, []byte(t.Hash))), nil
}

// endorse is the notary's: a transfer is signed by the owners of what it spends, and neither makes nor loses money.
func (w *wallet) endorse(_ context.Context, t domain.Ticket) (any, error) {
	var made tokenTransfer
	if err := json.Unmarshal(t.Assembled, &made); err != nil {
		return nil, domain.Revert("it cannot be read: " + err.Error())
	}
	if made.Fault == refusedOnce && w.first("endorse "+made.Intent, t.Key) {
		return nil, domain.Revert("the notary is not at the desk")
	}
	signed := map[string]bool{}
	for _, g := range t.Signatures {
		var text string
		if at := w.all[nodeOf(g.Party)]; at != nil && json.Unmarshal(g.Data, &text) == nil {
			sig, err := hex.DecodeString(text)
			public, ok := at.key.Public().(ed25519.PublicKey)
			signed[g.Party] = err == nil && ok && ed25519.Verify(public, []byte(t.Hash), sig)
		}
	}
	sum := int64(0)
	var ids []string
	for _, in := range made.In {
		if ids = append(ids, in.id()); !signed[in.Owner] {
			return nil, domain.Revert("not signed by " + in.Owner)
		}
		sum -= in.Amount
	}
	for _, out := range made.Out {
		sum += out.Amount
	}
	switch {
	case !slices.Equal(ids, t.Inputs):
		return nil, domain.Revert("it spends other tokens than it shows")
	case sum != 0 && made.Do != "mint":
		return nil, domain.Revert(fmt.Sprintf("it makes %d of nothing", sum))
	}
	return hex.EncodeToString(ed25519.Sign(w.key, []byte(t.Hash))), nil
}

// first says whether this is the key under which something was asked first.
func (w *wallet) first(what, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began[what] == "" {
		w.began[what] = key
	}
	return w.began[what] == key
}

// prepare makes the public transaction: all of its calls are done or none, and none a second time for one intent.
func (w *wallet) prepare(_ context.Context, p domain.Preparation) (domain.Public, error) {
	var made tokenTransfer
	if err := json.Unmarshal(p.Assembled, &made); err != nil {
		return domain.Public{}, err
	}
	type call struct {
		To     string `json:"to"`
		Method string `json:"method"`
	}
	calls := []call{{w.prefix + ofIntent + p.Intent.ID, "create"}}
	for _, in := range made.In {
		calls = append(calls, call{w.prefix + ofToken + in.id(), "require"},
			call{w.prefix + ofSpent + in.id(), "create"})
	}
	for _, out := range made.Out {
		calls = append(calls, call{w.prefix + ofToken + out.id(), "create"})
	}
	data := map[string]any{"calls": calls}
	// The notary's node counts, since another one may coordinate the next time.
	once := made.Fault == revertsOnce && w.all[w.notary].first("prepare "+made.Intent, p.Key)
	if once || made.Fault == revertsEach {
		data["simulate"] = map[string]any{"fail_in_block": map[string]any{"times": 100, "reason": revertReason}}
	}
	return domain.Public{Type: tokenType, Data: data}, nil
}

// look says whether the ledger has the public transaction of an intent for good.
func (w *wallet) look(ctx context.Context, intent string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.follow(ctx)
	return w.on[ofIntent+intent] > 0, err
}

func (w *wallet) height(ctx context.Context) (int64, error) {
	h, err := w.ledger.Health(ctx)
	return int64(h.Height), err
}
