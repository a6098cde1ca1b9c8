package message_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
)

// An envelope of strangers is refused as bad input, or is what the key that it names has signed.
func FuzzOpen(f *testing.F) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	good, err := message.Write(message.Signed{Type: message.Chat, Body: "hello"}, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"signatures"`), []byte(`"Signatures"`), 1))
	f.Add(bytes.Replace(good, []byte(`"sig":"`), []byte(`"sig":"A`), 1))
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":""}]}`))
	f.Add([]byte(`{"payload":null,"signatures":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, by, err := message.Open(raw)
		if err != nil {
			if k := fault.As(err).Kind; k != fault.Invalid && k != fault.Forbidden {
				t.Errorf("%s is %v", err, k)
			}
			return
		}
		if s.CallerKey != base64.StdEncoding.EncodeToString(by) {
			t.Errorf("it names %q, and was verified with %x", s.CallerKey, by)
		}
		var e message.Envelope
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		signed := false
		for _, sig := range e.Signatures {
			signed = signed || ed25519.Verify(by, message.PAE(e.PayloadType, e.Payload), sig.Sig)
		}
		if !signed {
			t.Errorf("no signature of %q is that of its key", raw)
		}
	})
}
