package chainsim

import (
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"slices"
	"strconv"
)

// base58 is the alphabet of Base58, as MINA writes hashes.
const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// firstFee is what a transaction without a fee offers, in nanomina.
const firstFee = "100000000"

// tx is one attempt in the pool or in a block.
type tx struct {
	id      string // of the transaction: the token without its attempt
	hash    string
	account string
	nonce   int64
	fee     *big.Int
	due     int64 // the first block that may hold it
	never   bool
	vanish  bool   // dropped with the next block
	fails   string // reason with which its block shows it, "" for well
	height  int64  // of its block, 0 while in the pool
	gone    bool   // dropped or replaced
}

// account is a signer: its next nonce in a block, and what it has in the pool.
type account struct {
	nonce int64
	pool  map[int64]*tx
}

// free is the lowest nonce that no transaction of the pool will use. One that is pending for ever does
// not count: a wallet would put the next one over it.
func (a *account) free() int64 {
	n := a.nonce
	for {
		t := a.pool[n]
		if t == nil || t.never {
			return n
		}
		n++
	}
}

// Block makes one block: what is due goes in, in the order of nonces, and what is to vanish leaves.
// It returns the new height.
func (s *Sim) Block() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.height++
	in := 0
	for _, name := range s.names {
		a := s.accounts[name]
		for _, t := range a.pool {
			if t.vanish {
				s.drop(a, t)
			}
		}
		for {
			t := a.pool[a.nonce]
			if t == nil || t.never || t.due > s.height {
				break
			}
			delete(a.pool, a.nonce)
			a.nonce++
			t.height = s.height
			in++
			if t.fails == "" {
				s.included[t.id]++
			}
		}
	}
	if in > 0 {
		s.log.Debug("block", "height", s.height, "included", in)
	}
	return s.height
}

// drop takes t out of the pool for good. The lock is held.
func (s *Sim) drop(a *account, t *tx) {
	delete(a.pool, t.nonce)
	t.gone = true
}

// submit puts an attempt into the pool, in place of an earlier one that it names. It returns the
// attempt, or the earlier one if that is in a block already and did well; or why it is refused. The
// lock is held.
func (s *Sim) submit(c call, sim Simulate) (t *tx, refused string) {
	a := s.accountOf(c.Sender.AccountID)
	fee, ok := new(big.Int).SetString(c.Postern.Fee, 10)
	if !ok {
		fee, _ = new(big.Int).SetString(firstFee, 10)
	}
	nonce := a.free()
	for _, h := range c.Postern.PreviousHashes {
		old := s.byHash[h]
		switch {
		case old == nil || old.gone || old.account != c.Sender.AccountID:
		case old.height > 0 && old.fails == "":
			return old, ""
		case old.height > 0:
		case fee.Cmp(old.fee) <= 0:
			return nil, "a fee of " + fee.String() + " does not replace one of " + old.fee.String() + ": want more"
		default:
			nonce = old.nonce
		}
	}
	if old := a.pool[nonce]; old != nil {
		s.drop(a, old)
	}
	id := c.transaction()
	t = &tx{id: id, hash: s.hash(c.Postern.Token), account: c.Sender.AccountID, nonce: nonce, fee: fee, never: sim.Never}
	after := sim.IncludeAfterBlocks
	if after <= 0 {
		after = 1 + int(s.chance(c.Postern.Token)%3)
	}
	t.due = s.height + int64(after)
	switch n := s.counts(id); {
	case sim.Vanish.due(n.vanished):
		n.vanished++
		t.vanish = true
	case sim.FailInBlock.due(n.failedInBlock):
		n.failedInBlock++
		if t.fails = sim.FailInBlock.Reason; t.fails == "" {
			t.fails = "Update_not_permitted_app_state"
		}
	}
	a.pool[nonce] = t
	s.byHash[t.hash] = t
	s.executed[id]++
	return t, ""
}

func (s *Sim) accountOf(name string) *account {
	a := s.accounts[name]
	if a == nil {
		a = &account{pool: map[int64]*tx{}}
		s.accounts[name] = a
		s.names = append(s.names, name)
		slices.Sort(s.names) // blocks look the same however senders came
	}
	return a
}

// digest makes the same 32 bytes of the same seed and token.
func (s *Sim) digest(token string) [32]byte {
	return sha256.Sum256([]byte(strconv.FormatUint(s.cfg.Seed, 10) + "/" + token))
}

func (s *Sim) chance(token string) uint64 {
	d := s.digest("chance/" + token)
	return binary.BigEndian.Uint64(d[:])
}

// hash looks like one of MINA's: 5J and fifty more characters of Base58.
func (s *Sim) hash(token string) string {
	d := s.digest(token)
	more := s.digest(token + "/more")
	n := new(big.Int).SetBytes(append(d[:], more[:]...))
	out := []byte("5J")
	digit, radix := new(big.Int), big.NewInt(58)
	for len(out) < 52 {
		n.DivMod(n, radix, digit)
		out = append(out, base58[digit.Int64()])
	}
	return string(out)
}
