package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/testdata/transactions"
)

// Sample is one entry of testdata/transactions.
type Sample struct {
	Note        string `json:"note"`
	Expect      Expect `json:"expect"`
	Transaction Post   `json:"transaction"`
}

// Expect says how a sample must end.
type Expect struct {
	State      outbox.State `json:"state"`
	MinRetries int          `json:"min_retries"`
	ErrorCode  string       `json:"error_code"` // "" is no error
}

// Post is what a client writes of a transaction.
type Post struct {
	Queue      string          `json:"queue"`
	Type       string          `json:"type"`
	UID        string          `json:"uid"`
	Data       json.RawMessage `json:"data"`
	MaxRetries *int            `json:"max_retries,omitempty"`
}

// Samples reads every sample, each file in its order. Queues and uids carry the name of the run, so that
// a second run on the same database posts transactions of its own.
func Samples(run string) ([]Sample, error) {
	files, err := fs.Glob(transactions.FS, "*.json")
	if err != nil {
		return nil, err
	}
	var all []Sample
	for _, file := range files {
		b, err := transactions.FS.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []Sample
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&some); err != nil {
			return nil, fmt.Errorf("testdata/transactions/%s: %w", file, err)
		}
		all = append(all, some...)
	}
	for i := range all {
		all[i].Transaction.Queue += "-" + run
		all[i].Transaction.UID += "-" + run
	}
	return all, nil
}

// dropped says whether the sample asks the devnet to drop it from its pool.
func (s Sample) dropped() bool {
	var d struct {
		Simulate struct{ Vanish struct{ Times int } }
	}
	return json.Unmarshal(s.Transaction.Data, &d) == nil && d.Simulate.Vanish.Times > 0
}

// app is the zkApp that the sample calls, "" for a transfer.
func (s Sample) app() string {
	var d struct{ ZkAppAddress string }
	if json.Unmarshal(s.Transaction.Data, &d) != nil {
		return ""
	}
	return d.ZkAppAddress
}

// unexpected says how an end differs from what the sample wants, "" if it does not.
func (e Expect) unexpected(t Transaction) string {
	code := ""
	if t.Error != nil {
		code = t.Error.Code
	}
	switch {
	case t.State != e.State:
		return fmt.Sprintf("ended %s, want %s", t.State, e.State)
	case t.Retries < e.MinRetries:
		return fmt.Sprintf("took %d retries, want at least %d", t.Retries, e.MinRetries)
	case code != e.ErrorCode:
		return fmt.Sprintf("has the error code %q, want %q", code, e.ErrorCode)
	}
	return ""
}
