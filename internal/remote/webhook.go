package remote

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// webhookTimeout is how long an endpoint may take to answer.
const webhookTimeout = 15 * time.Second

// maxKept is how much of an endpoint's answer is kept.
const maxKept = 1 << 10

// Message is one event on its way to an endpoint, as Standard Webhooks 1.0 wants it.
type Message struct {
	URL     string
	ID      string // the same however often it is delivered
	Body    []byte
	Secrets [][]byte           // HMAC keys; each of them signs it (v1)
	Key     ed25519.PrivateKey // signs it too, if there is one (v1a)
}

// Receipt is what came of one delivery of a message.
type Receipt struct {
	OK        bool   // 2xx
	Gone      bool   // 410: the endpoint wants nothing more
	Refused   bool   // the settings of this process keep it from the address
	Status    int    // 0 without an answer
	Answer    string // its first 1 KiB
	Message   string // why it was not delivered
	After     time.Duration
	StartedAt time.Time
	Elapsed   time.Duration
}

// Webhook delivers m once. It dials what workers may be dialled at, follows no redirect, and ends within
// 15 seconds. Deliver again later unless the receipt is OK or Gone.
func (c *Client) Webhook(ctx context.Context, m Message) Receipt {
	r := Receipt{StartedAt: c.now()}
	p := c.exchange(ctx, request{method: http.MethodPost, url: m.URL, body: m.Body,
		header: m.Header(r.StartedAt), timeout: webhookTimeout})
	now := c.now()
	r.Elapsed, r.Status, r.Refused = now.Sub(r.StartedAt), p.status, p.refused
	r.Answer = clip(strings.ReplaceAll(string(p.body[:min(len(p.body), 2*maxKept)]), "\x00", ""), maxKept)
	switch {
	case p.status == 0:
		r.Message = strings.ReplaceAll(p.message, "the worker", "the endpoint")
	case ok2xx(p.status):
		r.OK = true
	default:
		r.Gone = p.status == http.StatusGone
		r.Message = fmt.Sprintf("the endpoint answered HTTP %d", p.status)
		r.After = min(retryAfter(p.header, now), maxForeignWait)
	}
	return r
}

// Header signs the message for the moment at which it goes out.
func (m Message) Header(at time.Time) http.Header {
	seconds := strconv.FormatInt(at.Unix(), 10)
	signed := append([]byte(m.ID+"."+seconds+"."), m.Body...)
	var signatures []string
	for _, s := range m.Secrets {
		mac := hmac.New(sha256.New, s)
		mac.Write(signed)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if m.Key != nil {
		signatures = append(signatures, "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(m.Key, signed)))
	}
	h := http.Header{"Webhook-Id": {m.ID}, "Webhook-Timestamp": {seconds}}
	if len(signatures) > 0 {
		h["Webhook-Signature"] = []string{strings.Join(signatures, " ")}
	}
	return h
}
