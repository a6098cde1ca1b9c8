package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/journal"
)

// The operations of the journal.
const (
	opGenesis = "genesis" // chain, time
	opGrant   = "grant"   // to, amount
	opSubmit  = "submit"  // tx
	opBlock   = "block"   // height, time, takes, drops
	opEmpty   = "empty"   // height: blocks without transactions up to here, in a row
	opReorg   = "reorg"   // depth, time, drops
)

// record is one decision, as the journal keeps it.
type record struct {
	Op     string            `json:"op"`
	Chain  string            `json:"chain,omitempty"`
	Time   time.Time         `json:"time,omitzero"`
	To     devnet.Address    `json:"to,omitempty"`
	Amount uint64            `json:"amount,omitempty"`
	Tx     *devnet.Signed    `json:"tx,omitempty"`
	Height uint64            `json:"height,omitempty"`
	Takes  []string          `json:"takes,omitempty"`
	Drops  map[string]string `json:"drops,omitempty"` // hash -> reason
	Depth  int               `json:"depth,omitempty"`
}

// carryOut changes the state as a record says. It decides nothing: the same records always lead to the
// same state. An error means that the journal is not one of this ledger. The lock is held.
func (l *Ledger) carryOut(r record) error {
	if (r.Op == opGenesis) != (l.chain == "") {
		return fmt.Errorf("the record %q stands where it cannot: want genesis first, and once", r.Op)
	}
	switch r.Op {
	case opGenesis:
		l.chain = r.Chain
		l.push(&block{time: r.Time})
		return nil
	case opGrant:
		l.state.grant(r.To, r.Amount)
		return nil
	case opSubmit:
		if r.Tx == nil {
			return errors.New("a submit has no transaction")
		}
		return l.admit(*r.Tx)
	case opBlock:
		return l.include(r)
	case opEmpty:
		for uint64(len(l.blocks)) <= r.Height {
			l.push(&block{time: r.Time})
		}
		return nil
	case opReorg:
		return l.unwind(r)
	}
	return fmt.Errorf("the record %q is not known: was the journal written by a newer version?", r.Op)
}

// replay carries out a line of the journal.
func (l *Ledger) replay(line []byte) error {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	return l.carryOut(r)
}

// foldFrom is the size from which a journal is worth folding.
var foldFrom int64 = 1 << 20

// fold rewrites a journal so that empty blocks in a row are one record: a devnet that is not used makes mostly those.
func fold(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() < foldFrom {
		return err
	}
	var all []record
	j, err := journal.Open(path, func(line []byte) error {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		empty := r.Op == opEmpty || r.Op == opBlock && len(r.Takes)+len(r.Drops) == 0
		if n := len(all); empty && n > 0 && all[n-1].Op == opEmpty {
			all[n-1].Height, all[n-1].Time = r.Height, r.Time
			return nil
		}
		if empty {
			r.Op = opEmpty
		}
		all = append(all, r)
		return nil
	})
	if err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	return journal.Rewrite(path, func(add func(any) error) error {
		for _, r := range all {
			if err := add(r); err != nil {
				return err
			}
		}
		return nil
	})
}
