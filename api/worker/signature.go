package worker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// tolerance is how far the clocks of both ends may be apart, and how long a call may be under way.
const tolerance = 5 * time.Minute

// keyOf reads Options.Secret.
func keyOf(secret string) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("the secret of this worker is not whsec_ and the base64 of 24 to 64 bytes")
	}
	return key, nil
}

// signed says why a call is not believed, nil if it is: below is its path, such as dispatch/PAY, with which the
// webhook-id of each call begins, so that a call that was overheard is no other one.
func (w *Worker) signed(h http.Header, below string, body []byte) error {
	if w.bad != nil {
		return w.bad
	}
	if len(w.key) == 0 {
		return nil
	}
	return Believe(w.key, h, below, body)
}

// Believe says why a call is not believed, nil if it was signed with key, the bytes of a secret, for what is below the
// URL of the worker, such as dispatch/PAY, and not long ago.
func Believe(key []byte, h http.Header, below string, body []byte) error {
	id, at := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return errors.New("webhook-timestamp is missing, or no number of seconds: is this call signed?")
	}
	const off = "webhook-timestamp is %s %s the clock here: want at most %s; are the clocks right?"
	switch age := time.Since(time.Unix(seconds, 0)).Round(time.Second); {
	case age > tolerance:
		return fmt.Errorf(off, age, "behind", tolerance)
	case age < -tolerance:
		return fmt.Errorf(off, -age, "ahead of", tolerance)
	}
	if !strings.HasPrefix(id, below+"/") {
		return errors.New("webhook-id does not begin with " + strconv.Quote(below+"/"))
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	for s := range strings.FieldsSeq(h.Get("webhook-signature")) {
		signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1,"))
		if err == nil && hmac.Equal(signature, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("webhook-signature is not by the secret of this worker")
}
