package chainsim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/chainsim"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// sample is one entry of testdata/transactions: what is posted, and how it must end in the demo.
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

func samples(t *testing.T) (all []sample) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/transactions/*.json")
	if err != nil || len(files) != len(chainsim.Types) {
		t.Fatalf("%d files of transactions (%v), want one per type of seed 2", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var of []sample
		dec := json.NewDecoder(strings.NewReader(string(b)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&of); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, s := range of {
			if name := strings.ToLower(strings.ReplaceAll(s.Transaction.Type, "_", "-")) + ".json"; filepath.Base(file) != name {
				t.Errorf("%s: holds a transaction of type %s", file, s.Transaction.Type)
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
		if s.Note == "" || tx.Queue == "" || !slices.Contains(chainsim.Types, tx.Type) || uids[tx.UID] || tx.UID == "" {
			t.Errorf("%q: want a note, a queue, a type of seed 2 and a uid of its own: %+v", s.Note, tx)
		}
		uids[tx.UID] = true
		queues[tx.Queue]++
		states[s.Expect.State]++
	}
	if len(all) < 36 || len(queues) < 9 || states[outbox.FAILED] < 3 || states[outbox.UNRESOLVED] != 1 || len(states) != 3 {
		t.Errorf("%d transactions in %d queues end as %v", len(all), len(queues), states)
	}
}

// The demo's settings (S2.9, S2.11): max_retries 2, two polls a block, a deadline of eight blocks.
// Here a block passes whenever the chain is asked, so that the whole demo takes a moment.
func TestEachSampleEndsAsItSays(t *testing.T) {
	t.Parallel()
	sim, url := start(t, 0)
	client := remotetest.Client(t)
	for i, s := range samples(t) {
		r := run(t, sim, client, url, int64(i+1), s)
		if r.state != s.Expect.State || r.retries < s.Expect.MinRetries || r.code != s.Expect.ErrorCode {
			t.Errorf("%s (%s): ended %s after %d retries with code %q, want %+v", s.Transaction.UID, s.Note, r.state, r.retries, r.code, s.Expect)
		}
		if n := sim.Stats().Included[r.id]; (n == 1) != (r.state == outbox.DONE) || n > 1 {
			t.Errorf("%s: ended %s and is in %d blocks", s.Transaction.UID, r.state, n)
		}
	}
}

type end struct {
	state   outbox.State
	retries int
	code    string
	id      string
}

// run is the life of one transaction, as short as it can be told: seed 2 without queue, time or loss.
func run(t *testing.T, sim *chainsim.Sim, client *remote.Client, url string, seq int64, s sample) end {
	t.Helper()
	c := remotetest.Call(url, seq)
	c.Type, c.UID, c.Queue, c.Data, c.Account = s.Transaction.Type, s.Transaction.UID, s.Transaction.Queue, s.Transaction.Data, fmt.Sprint("B62q", seq%3)
	c.Timeout = 5 * time.Second
	most, e, fee := outbox.DefaultMaxRetries, end{id: c.ID.String()}, int64(0)
	if s.Transaction.MaxRetries != nil {
		most = *s.Transaction.MaxRetries
	}
	for sends := 0; sends < 20; sends++ {
		a := client.Dispatch(t.Context(), c)
		hash, code := a.Result.Hash, a.Code
		switch a.Class {
		case outbox.ClassRejected:
			e.state, e.code = outbox.UNRESOLVED, code
			return e
		case outbox.ClassBlocked:
			continue
		case outbox.ClassAmbiguous:
			st := client.Status(t.Context(), url, c.Type, c.ID.Token(c.Attempt), "")
			if st.State == outbox.StatusUnknown {
				continue
			}
			hash = st.Hash
		}
		if hash != "" {
			if code = follow(t, sim, client, url, c.Type, hash); code == "" {
				e.state = outbox.DONE
				return e
			}
			c.PreviousHashes = append(c.PreviousHashes, hash)
			if fee == 0 {
				fee = 100000000
			}
			fee += fee / 10
			c.Fee = fmt.Sprint(fee)
		}
		if e.retries == most {
			e.state, e.code = outbox.FAILED, code
			return e
		}
		e.retries++
		c.Attempt++
	}
	t.Fatalf("%s does not end", c.UID)
	return e
}

// follow makes blocks until hash is in one, failed in one or is overdue; it returns the code, "" if well.
func follow(t *testing.T, sim *chainsim.Sim, client *remote.Client, url, typ, hash string) string {
	for range 8 {
		switch st := client.Status(t.Context(), url, typ, "", hash); st.State {
		case outbox.StatusIncluded:
			return ""
		case outbox.StatusFailed:
			return "20206"
		case outbox.StatusUnreachable, outbox.StatusUnsupported:
			t.Fatalf("status of %s: %+v", hash, st)
		}
		sim.Block()
	}
	return "20205"
}
