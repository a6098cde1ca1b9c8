package devnetworker

import (
	"encoding/json"
	"strconv"
	"strings"
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
		FeeFactor      string   `json:"fee_factor"`
		PreviousHashes []string `json:"previous_hashes"`
	}
	line string // within what fences are compared, of the header; "" for work whose fences are not
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
