package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// actor is somebody who signs requests (RFC 9421) and what goes to another installation (DSSE).
type actor struct {
	key ed25519.PrivateKey
	ids [2]string // at both installations
}

func newActor() *actor {
	_, key, _ := ed25519.GenerateKey(nil) // it does not fail
	return &actor{key: key}
}

// public is the base64 of its public key.
func (a *actor) public() string { return in64(a.key.Public().(ed25519.PublicKey)) }

func in64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// sign signs a request with its body, which has no headers that have to be signed.
func (a *actor) sign(r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	digest := "sha-256=:" + in64(sum[:]) + ":"
	now := time.Now()
	params := fmt.Sprintf(`("@method" "@target-uri" "content-digest");created=%d;expires=%d;nonce="%s";alg="ed25519";`+
		`keyid="%s"`, now.Unix(), now.Add(time.Minute).Unix(), rand.Text(), a.public())
	base := fmt.Sprintf("\"@method\": %s\n\"@target-uri\": %s\n\"content-digest\": %s\n\"@signature-params\": %s",
		r.Method, r.URL, digest, params)
	r.Header.Set("Content-Digest", digest)
	r.Header.Set("Signature-Input", "chaos="+params)
	r.Header.Set("Signature", "chaos=:"+in64(ed25519.Sign(a.key, []byte(base)))+":")
}

// envelope signs what goes to another installation: a message, or the job of one.
func (a *actor) envelope(audience, said map[string]any) json.RawMessage {
	const kind = "application/vnd.postern.message+json"
	payload := map[string]any{"v": 1, "audience": audience, "caller_key": a.public(),
		"created_at": time.Now().UTC().Format(time.RFC3339Nano)}
	for name, value := range said {
		payload[name] = value
	}
	text, _ := json.Marshal(payload)
	signed := fmt.Sprintf("DSSEv1 %d %s %d %s", len(kind), kind, len(text), text)
	out, _ := json.Marshal(map[string]any{"payloadType": kind, "payload": in64(text),
		"signatures": []any{map[string]string{"keyid": a.public(), "sig": in64(ed25519.Sign(a.key, []byte(signed)))}}})
	return out
}
