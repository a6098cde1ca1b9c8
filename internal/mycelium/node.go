package mycelium

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var publicKey = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// messages is the path of the API.
const messages = "/api/v1/messages"

// Node is the local node. It is safe for concurrent use.
type Node struct {
	url  string
	http *http.Client
}

// New is the node at a URL such as http://127.0.0.1:8989, which is called over a transport; no redirect is followed.
func New(at string, over http.RoundTripper) *Node {
	return &Node{url: strings.TrimSuffix(at, "/"), http: &http.Client{
		Transport:     over,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Message is one that was received.
type Message struct {
	ID      string `json:"id"`    // 16 hex digits
	SrcPk   string `json:"srcPk"` // public key of the sender
	Payload []byte `json:"payload"`
}

// Refusal is an answer of the node that brings no message.
type Refusal struct {
	Status int
	Said   string // the beginning of its body
}

// Error says it in words.
func (e *Refusal) Error() string {
	s := strings.TrimSpace(fmt.Sprintf("the Mycelium node answered HTTP %d %s", e.Status, http.StatusText(e.Status)))
	if e.Said != "" {
		s += ": " + e.Said
	}
	return s
}

// Errors of what a node answers with 200: a message that was taken is gone all the same.
var (
	ErrTooLarge = errors.New("the answer of the Mycelium node is too large")
	ErrNoReply  = errors.New("the answer of the Mycelium node is no message")
)

// destination and push are PushMessageBody of the API.
type destination struct {
	Pk string `json:"pk"`
}

type push struct {
	Dst     destination `json:"dst"`
	Topic   []byte      `json:"topic,omitempty"`
	Payload []byte      `json:"payload"`
}

// MostPushed is how many bytes a push may have: the limit of a node for what it is asked.
const MostPushed = 2 << 20

// Pushed is how many bytes the push of a payload has, about: base64, and keys and names beside it.
func Pushed(payload []byte) int { return base64.StdEncoding.EncodedLen(len(payload)) + 200 }

// Push sends a message of the topic to a key, and waits so long for the reply. It reads so many bytes of an answer.
// Without a reply the error is a *Refusal, ErrTooLarge, ErrNoReply, or one of the connection.
func (n *Node) Push(ctx context.Context, key string, payload []byte, wait time.Duration, most int64) (*Message, error) {
	seconds := (wait + time.Second - 1) / time.Second // the time of ctx bounds it all the same
	return n.call(ctx, http.MethodPost, messages+"?reply_timeout="+strconv.FormatInt(int64(max(seconds, 1)), 10),
		&push{Dst: destination{Pk: key}, Topic: []byte(Topic), Payload: payload}, most)
}

// Pop takes a message of the topic that is there; nil: there is none. It does not wait for one. Nodes hold a lock for
// as long as such a call waits: until it ends, they answer nothing else, no push and no reply.
func (n *Node) Pop(ctx context.Context, most int64) (*Message, error) {
	query := url.Values{"topic": {base64.StdEncoding.EncodeToString([]byte(Topic))}, "timeout": {"0"}}
	m, err := n.call(ctx, http.MethodGet, messages+"?"+query.Encode(), nil, most)
	var none *Refusal
	if errors.As(err, &none) && none.Status == http.StatusNoContent {
		return nil, nil
	}
	return m, err
}

// Reply answers a message that was taken.
func (n *Node) Reply(ctx context.Context, to *Message, payload []byte) error {
	_, err := n.call(ctx, http.MethodPost, messages+"/reply/"+to.ID,
		&push{Dst: destination{Pk: to.SrcPk}, Payload: payload}, 0)
	var done *Refusal
	if errors.As(err, &done) && done.Status == http.StatusNoContent {
		return nil
	}
	return err
}

// call makes one request to the node. A message is what it answers with 200, and any other status is a *Refusal.
func (n *Node) call(ctx context.Context, method, path string, body *push, most int64) (*Message, error) {
	var raw []byte
	if body != nil {
		raw, _ = json.Marshal(body) // texts and bytes never fail
	}
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.GetBody = nil // net/http sends nothing twice by itself
	}
	res, err := n.http.Do(req)
	if err != nil {
		return nil, unwrapped(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		return nil, &Refusal{Status: res.StatusCode, Said: strings.ToValidUTF8(strings.TrimSpace(string(said)), "")}
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, ErrTooLarge
	}
	return readMessage(text)
}

// readMessage reads what the node answers with a message; anything else is ErrNoReply.
func readMessage(text []byte) (*Message, error) {
	var m Message
	if json.Unmarshal(text, &m) != nil || !publicKey.MatchString(m.SrcPk) || !messageID(m.ID) {
		return nil, ErrNoReply
	}
	m.SrcPk = strings.ToLower(m.SrcPk)
	return &m, nil
}

// unwrapped is an error of http.Client without the method and the address, which say nothing of the worker.
func unwrapped(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// messageID says whether a text is the id of a message: 16 hex digits.
func messageID(text string) bool {
	_, err := strconv.ParseUint(text, 16, 64)
	return err == nil && len(text) == 16
}

// Close lets go of idle connections.
func (n *Node) Close() { n.http.CloseIdleConnections() }
