package remote

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"
)

// ParseSecret reads a secret of Standard Webhooks as it is written: whsec_ and the base64 of 24 to 64 bytes. The error
// does not quote it.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil,
			errors.New("want whsec_ and the base64 of 24 to 64 bytes, such as printf whsec_; openssl rand -base64 32")
	}
	return key, nil
}

type secretKey struct{}

// Signed has what is sent to a worker with ctx carry a signature by secret, as Standard Webhooks has it (v1); nothing
// is signed where there is no secret, nor what has no body, such as GET /health.
func Signed(ctx context.Context, secret []byte) context.Context {
	if len(secret) == 0 {
		return ctx
	}
	return context.WithValue(ctx, secretKey{}, secret)
}

// signed is the header of r with its signature, if ctx has it signed. The webhook-id is the path below the worker's
// URL, and then the token of a call or something drawn for a question: who overhears a call cannot make another one of
// it.
func (r request) signed(ctx context.Context, now time.Time) http.Header {
	secret, ok := ctx.Value(secretKey{}).([]byte)
	if !ok || r.below == "" || r.body == nil {
		return r.header
	}
	token := r.header.Get("Idempotency-Key")
	if token == "" {
		token = rand.Text()
	}
	h := Message{ID: r.below + "/" + token, Body: r.body, Secrets: [][]byte{secret}}.Header(now)
	for k, v := range r.header {
		h[k] = v
	}
	return h
}
