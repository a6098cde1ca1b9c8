package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/postern-dev/postern/internal/devnet"
)

// account is the money and the nonce of an address. Grants lie outside of blocks: no reorg takes them back, so they are
// kept apart from what blocks did.
type account struct {
	granted uint64
	net     int64 // what blocks brought, less what they took
	nonce   uint64
}

func (a account) balance() uint64 { return uint64(int64(a.granted) + a.net) }

// app is what the calls of an app left.
type app struct {
	calls   uint64
	balance uint64
	root    string
}

// state is all accounts and apps, and how to go back.
type state struct {
	accounts map[devnet.Address]account
	apps     map[string]app
	granted  uint64
	sink     uint64 // fees
	undo     []step
}

// step is one value before it was changed.
type step struct {
	address devnet.Address // or
	app     string         // or neither: the sink
	account account
	was     app
	existed bool
	sink    uint64
}

func newState() *state {
	return &state{accounts: map[devnet.Address]account{}, apps: map[string]app{}}
}

// setAccount changes nonce and net of an account.
func (s *state) setAccount(a devnet.Address, now account) {
	was, existed := s.accounts[a]
	s.undo = append(s.undo, step{address: a, account: was, existed: existed})
	s.accounts[a] = now
}

func (s *state) setApp(name string, now app) {
	was, existed := s.apps[name]
	s.undo = append(s.undo, step{app: name, was: was, existed: existed})
	s.apps[name] = now
}

func (s *state) setSink(now uint64) {
	s.undo = append(s.undo, step{sink: s.sink})
	s.sink = now
}

// take returns the steps since the last take, which belong to one block.
func (s *state) take() []step {
	steps := s.undo
	s.undo = nil
	return steps
}

// back undoes steps, the last one first. Money that was granted since stays granted.
func (s *state) back(steps []step) {
	for _, u := range slices.Backward(steps) {
		switch {
		case u.address != "":
			now := s.accounts[u.address]
			now.net, now.nonce = u.account.net, u.account.nonce
			if s.accounts[u.address] = now; !u.existed && now.granted == 0 {
				delete(s.accounts, u.address)
			}
		case u.app != "":
			if s.apps[u.app] = u.was; !u.existed {
				delete(s.apps, u.app)
			}
		default:
			s.sink = u.sink
		}
	}
}

// grant gives money to an account, for good.
func (s *state) grant(a devnet.Address, amount uint64) {
	now := s.accounts[a]
	now.granted += amount
	s.accounts[a] = now
	s.granted += amount
}

// hash is the same for the same accounts and apps, however they came about.
func (s *state) hash() string {
	h := sha256.New()
	for _, a := range slices.Sorted(maps.Keys(s.accounts)) {
		now := s.accounts[a]
		fmt.Fprintln(h, a, now.granted, now.net, now.nonce)
	}
	for _, name := range slices.Sorted(maps.Keys(s.apps)) {
		now := s.apps[name]
		fmt.Fprintf(h, "%q %d %d %s\n", name, now.calls, now.balance, now.root)
	}
	fmt.Fprintln(h, s.granted, s.sink)
	return hex.EncodeToString(h.Sum(nil))
}
