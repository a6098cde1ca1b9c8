package devnetworker

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
)

// call is the body of a dispatch or hook, as far as this worker reads it (S2.7).
type call struct {
	TxData struct {
		UID, Type string
		Data      json.RawMessage
	} `json:"txData"`
	Sender struct {
		AccountID string `json:"accountId"`
		Queue     string
		Retries   int
	}
	Postern struct {
		Token          string
		Attempt        int
		Epoch          int
		Fence          int64
		Fee, Nonce     string
		PreviousHashes []string `json:"previous_hashes"`
	}
}

// token names the attempt. A reference caller has none: there it is made of what it has.
func (c call) token() string {
	if c.Postern.Token != "" {
		return c.Postern.Token
	}
	return "uid/" + c.TxData.UID + "." + strconv.Itoa(c.Sender.Retries+1)
}

// transaction is the id that the token begins with.
func (c call) transaction() string { return transactionOf(c.token()) }

func transactionOf(token string) string {
	if i := strings.LastIndexByte(token, '.'); i > 0 {
		return token[:i]
	}
	return token
}

// attemptOf is the number that a token ends with, 0 if it has none.
func attemptOf(token string) int {
	n, _ := strconv.Atoi(token[strings.LastIndexByte(token, '.')+1:])
	return n
}

// queue names what fences are compared within: the queue that our id names, since two contexts may each
// have a queue of the same name.
func (c call) queue() string {
	if id, err := outbox.ParseID(c.transaction()); err == nil {
		return "#" + strconv.FormatInt(id.Queue, 10)
	}
	return c.Sender.Queue
}

// rank is what a queue's calls are compared by: the epoch of the caller's database first, which rises when
// one is restored, then the fence.
type rank struct {
	epoch int
	fence int64
}

func (t rank) before(o rank) bool {
	return t.epoch < o.epoch || t.epoch == o.epoch && t.fence < o.fence
}

func (c call) rank() rank { return rank{c.Postern.Epoch, c.Postern.Fence} }
