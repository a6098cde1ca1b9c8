package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// covered is what Postern signs of a call: the method, the URL, the digest of the body, and the key of the call.
const covered = `("@method" "@target-uri" "content-digest" "idempotency-key")`

// verify says what is wrong with the signature of a call (RFC 9421), nil if it holds now: signed by key, for this URL
// and this body. url is the one under which the tool is registered, as the caller sees it, and not what a proxy made of
// it.
func verify(r *http.Request, body []byte, url string, key ed25519.PublicKey, now time.Time) error {
	digest := sha256.Sum256(body)
	if r.Header.Get("Content-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":" {
		return errors.New("Content-Digest is not that of the body")
	}
	params, found := strings.CutPrefix(r.Header.Get("Signature-Input"), "postern=")
	times, complete := strings.CutPrefix(params, covered+";")
	if !found || !complete {
		return errors.New("Signature-Input: want postern=" + covered + ";...")
	}
	created, expires := number(times, "created"), number(times, "expires")
	if s := now.Unix(); s < created-60 || s > expires || expires-created > 300 {
		return errors.New("the signature is not of now")
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Signature"),
		"postern=:"), ":"))
	if err != nil {
		return errors.New("Signature: want postern=:base64:")
	}
	base := fmt.Sprintf("\"@method\": %s\n\"@target-uri\": %s\n\"content-digest\": %s\n\"idempotency-key\": %s\n\"@signature-params\": %s",
		r.Method, url, r.Header.Get("Content-Digest"), r.Header.Get("Idempotency-Key"), params)
	if !ed25519.Verify(key, []byte(base), sig) {
		return errors.New("the signature does not hold")
	}
	return nil
}

// number reads one of the parameters behind the covered components, 0 if it is not there.
func number(params, name string) (n int64) {
	for _, p := range strings.Split(params, ";") {
		if v, ok := strings.CutPrefix(p, name+"="); ok {
			n, _ = strconv.ParseInt(v, 10, 64)
		}
	}
	return n
}

// publicKey reads a key as Postern shows its own: whpk_ and base64.
func publicKey(s string) (ed25519.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "whpk_"))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q: want whpk_ and the base64 of an ed25519 key", s)
	}
	return raw, nil
}
