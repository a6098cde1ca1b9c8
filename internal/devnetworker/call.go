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

// transaction names the transaction: its token without the attempt.
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

// queue names what fences are compared within: the queue that the id in the token names, since two contexts may each
// have a queue of the same name.
func (c call) queue() string {
	text, _, _ := strings.Cut(c.token(), ".")
	if id, err := outbox.ParseID(text); err == nil {
		return "#" + strconv.FormatInt(id.Queue, 10)
	}
	return c.Sender.Queue
}
