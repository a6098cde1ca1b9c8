package devnetworker_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnetworker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/testdata/transactions"
)

// sample is one entry of testdata/transactions: the transaction, and how it must end in the demo.
type sample struct {
	Note   string
	Expect struct {
		State      outbox.State
		MinRetries int    `json:"min_retries"`
		ErrorCode  string `json:"error_code"`
	}
	Transaction struct {
		Queue, Type, UID string
		Data             json.RawMessage
		MaxRetries       *int `json:"max_retries"`
	}
}

// types are those of the samples, one file each.
var types = append(slices.Clone(devnetworker.Types), "TRANSFER")

func samples(t *testing.T) (all []sample) {
	t.Helper()
	for _, typ := range types {
		b, err := transactions.FS.ReadFile(strings.ToLower(strings.ReplaceAll(typ, "_", "-")) + ".json")
		must(t, err)
		var of []sample
		dec := json.NewDecoder(strings.NewReader(string(b)))
		dec.DisallowUnknownFields()
		must(t, dec.Decode(&of))
		for _, s := range of {
			if s.Transaction.Type != typ {
				t.Errorf("the file of %s holds a transaction of type %s", typ, s.Transaction.Type)
			}
		}
		all = append(all, of...)
	}
	return all
}

func TestTheSampleTransactionsAreManyAndDiffer(t *testing.T) {
	t.Parallel()
	all := samples(t)
	queues, uids, states := map[string]int{}, map[string]bool{}, map[outbox.State]int{}
	for _, s := range all {
		tx := s.Transaction
		if s.Note == "" || tx.Queue == "" || uids[tx.UID] || tx.UID == "" {
			t.Errorf("%q: want a note, a queue and a uid of its own: %+v", s.Note, tx)
		}
		uids[tx.UID] = true
		queues[tx.Queue]++
		states[s.Expect.State]++
	}
	files, err := transactions.FS.ReadDir(".")
	must(t, err)
	files = slices.DeleteFunc(files, func(e fs.DirEntry) bool { return path.Ext(e.Name()) != ".json" })
	if len(files) != len(types) || len(all) < 42 || len(queues) < 11 || states[outbox.FAILED] < 5 || len(states) != 2 {
		t.Errorf("%d transactions of %d files in %d queues end as %v", len(all), len(files), len(queues), states)
	}
}

// The demo's settings: max_retries 2, a deadline of ten blocks. Here a block passes whenever the ledger is
// asked, so that the whole demo takes a moment.
func TestEachSampleEndsAsItSays(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, devnetworker.Config{Auto: 1 << 40})
	done := 0
	for i, s := range samples(t) {
		e := b.live(int64(i+1), s)
		if e.state != s.Expect.State || e.retries < s.Expect.MinRetries || e.code != s.Expect.ErrorCode {
			t.Errorf("%s (%s): ended %s after %d retries with code %q, want %+v", s.Transaction.UID, s.Note,
				e.state, e.retries, e.code, s.Expect)
		}
		if e.state == outbox.DONE {
			done++
		}
	}
	b.blocks(3)
	events, err := b.ledger.Events("", 1000)
	must(t, err)
	if len(events.Events) != done {
		t.Errorf("%d calls and transfers are on the ledger, %d transactions are DONE", len(events.Events), done)
	}
}

type end struct {
	state   outbox.State
	retries int
	code    string
}

// live is the life of one transaction, as short as it can be told: seed 2 without queue, time or loss.
func (b *bench) live(seq int64, s sample) (e end) {
	b.t.Helper()
	c := b.call(seq)
	c.Type, c.UID, c.Queue, c.Data, c.Account, c.Fee = s.Transaction.Type, s.Transaction.UID, s.Transaction.Queue,
		s.Transaction.Data, fmt.Sprint("B62q", seq%3), ""
	c.Timeout = 5 * time.Second
	most, fee := 2, int64(1000) // as the demo has it
	if s.Transaction.MaxRetries != nil {
		most = *s.Transaction.MaxRetries
	}
	for sends := 0; sends < 20; sends++ {
		a := b.client.Dispatch(b.t.Context(), c)
		hash, code := a.Result.Hash, a.Code
		switch a.Class {
		case outbox.ClassRejected:
			return end{outbox.FAILED, e.retries, code}
		case outbox.ClassBlocked:
			continue
		case outbox.ClassAmbiguous:
			st := b.byToken(c)
			if st.State == outbox.StatusUnknown {
				continue
			}
			hash = st.Hash
		}
		if hash != "" {
			if code = b.follow(c.Type, hash); code == "" {
				return end{outbox.DONE, e.retries, ""}
			}
			fee += fee / 10
			a.Result.Hash = hash
		}
		if e.retries == most {
			b.client.Hook(b.t.Context(), c, outbox.OnFailure, nil, nil, c.ID.HookToken(c.PostedAt, outbox.OnFailure))
			return end{outbox.FAILED, e.retries, code}
		}
		e.retries++
		c = again(c, a, fmt.Sprint(fee))
	}
	b.t.Fatalf("%s does not end", c.UID)
	return e
}

// follow makes blocks until hash is in one, failed in one or is overdue; it returns the code, "" if well.
func (b *bench) follow(typ, hash string) string {
	for range 10 {
		switch st := b.client.Status(b.t.Context(), b.url, typ, "", hash); st.State {
		case outbox.StatusIncluded:
			return ""
		case outbox.StatusFailed:
			return "20206"
		case outbox.StatusUnreachable, outbox.StatusUnsupported:
			b.t.Fatalf("status of %s: %+v", hash, st)
		}
		b.blocks(1)
	}
	return "20205"
}
