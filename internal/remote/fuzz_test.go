package remote

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/outbox"
)

// Whatever a worker answers: no panic, nothing that PostgreSQL would refuse, and an answer without a
// class is one that was accepted or done.
func FuzzAnAnswerIsFitToBeStored(f *testing.F) {
	for _, seed := range []string{
		`{"hash":"5J","done":{},"error":null}`, `{"done":"\u0000\ud800"}`, `{"done":[1e999999,-0.0]}`, `{"error":{"code":502.0,"after":1e99}}`,
		`{"error":{"class":"blocked","until":"2026-11-20T00:00:00Z"}}`, `[[[[`, `null`, "{\"data\":\"\xff\"}", `{"hash":"h","done":{ }}`,
	} {
		f.Add(200, []byte(seed))
	}
	now := time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := classify(reply{status: 200 + (status&0x7fffffff)%400, body: body, sent: true}, now)
		if a.Class == "" && a.Result.Hash == "" && a.Result.Done == nil {
			t.Errorf("%q: accepted with neither hash nor done", body)
		}
		if a.Class != "" && a.Code == "" {
			t.Errorf("%q: class %s without a code", body, a.Class)
		}
		for _, s := range []string{a.Code, a.Message, a.Result.Hash, a.Result.Nonce, a.Result.Fee} {
			if strings.ContainsRune(s, 0) || !utf8.ValidString(s) || len(s) > maxMessage {
				t.Errorf("%q: %q cannot be stored", body, s)
			}
		}
		for _, raw := range []json.RawMessage{a.Result.Done, a.Result.Data} {
			if raw != nil && (!json.Valid(raw) || !utf8.Valid(raw) || holdsNUL(raw)) {
				t.Errorf("%q: %s cannot be stored", body, raw)
			}
		}
		if a.After < 0 || a.After > maxWait || a.Until.After(now.Add(maxWait)) {
			t.Errorf("%q: waits %s, until %s", body, a.After, a.Until)
		}
		if st := readStatus(body, ""); st.State == outbox.StatusIncluded && (st.BlockHeight == "" || st.FailureReason != "") {
			t.Errorf("%q: included as %+v", body, st)
		}
	})
}

// holdsNUL looks for the escape of NUL, and not for a backslash before the text u0000.
func holdsNUL(raw []byte) bool {
	return bytes.Contains(bytes.ReplaceAll(raw, []byte(`\\`), nil), []byte(`\u0000`))
}

func BenchmarkDispatchBody(b *testing.B) {
	c := Call{Type: "SEND_CLAIM_VOTE", UID: "claim-vote-1", Queue: "claim-1", Data: json.RawMessage(`{"claimUid":"1"}`), State: outbox.DISPATCHING, PreviousHashes: []string{"5J"}}
	token, at := c.Token(), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		dispatchBody(c, token, at)
	}
}
