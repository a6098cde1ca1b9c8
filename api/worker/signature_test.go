package worker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestAWorkerBelievesWhatItsSecretSigned(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	w := worker.New(worker.Options{Status: included, Secret: "whsec_" + base64.StdEncoding.EncodeToString(key)})
	worker.Handle(w, typ, sent)
	var last *http.Request
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		last = r.Clone(t.Context())
		w.Handler().ServeHTTP(out, r)
	}))
	t.Cleanup(s.Close)
	c := remotetest.Client(t)
	signed := remote.Signed(t.Context(), key)

	if a := c.Dispatch(signed, remotetest.Call(s.URL, 1)); a.Class != "" || a.Result.Hash == "" {
		t.Fatalf("%+v", a)
	}
	heard, said := last, body
	if st := c.Status(signed, s.URL, typ, remotetest.Call(s.URL, 1).Token(), ""); st.State != outbox.StatusIncluded {
		t.Errorf("%+v", st)
	}
	if list := c.StatusBatch(signed, s.URL, typ, []string{"h-x"}); list[0].State != outbox.StatusIncluded {
		t.Errorf("%+v", list)
	}
	if a := c.Hook(signed, remotetest.Call(s.URL, 1), outbox.OnSuccess, json.RawMessage(`{}`), nil, "x.on-success"); !a.Missing {
		t.Errorf("%+v", a)
	}

	for name, ctx := range map[string]bool{"nothing": false, "another secret": true} {
		unsigned := t.Context()
		if ctx {
			unsigned = remote.Signed(t.Context(), []byte("another secret, of 32 bytes ....."))
		}
		if a := c.Dispatch(unsigned, remotetest.Call(s.URL, 2)); a.Class != outbox.ClassBlocked || a.Code != "bad_signature" {
			t.Errorf("signed with %s: %+v", name, a)
		}
		if st := c.Status(unsigned, s.URL, typ, "t.1", ""); st.State != outbox.StatusUnreachable {
			t.Errorf("signed with %s: %+v", name, st)
		}
	}

	// what somebody overheard: as it was it is the same call once more, and nothing else can be made of it
	replay := func(path string, change func(http.Header, []byte) []byte) int {
		h, sent := heard.Header.Clone(), bytes.Clone(said)
		if change != nil {
			sent = change(h, sent)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if got := replay("/dispatch/"+typ, nil); got != http.StatusOK {
		t.Errorf("the same call is answered %d", got)
	}
	worker.Handle(w, "REFUND", sent)
	for name, got := range map[string]int{
		"another type": replay("/dispatch/REFUND", nil),
		"a question":   replay("/status/"+typ, nil),
		"another body": replay("/dispatch/"+typ, func(_ http.Header, b []byte) []byte { return append(b, ' ') }),
		"another id": replay("/dispatch/"+typ, func(h http.Header, b []byte) []byte {
			h.Set("webhook-id", h.Get("webhook-id")+"1")
			return b
		}),
		"an old time": replay("/dispatch/"+typ, func(h http.Header, b []byte) []byte { h.Set("webhook-timestamp", "1700000000"); return b }),
	} {
		if got != http.StatusUnauthorized {
			t.Errorf("%s is answered %d", name, got)
		}
	}
	if res, err := http.Get(s.URL + "/health"); err != nil || res.StatusCode != http.StatusOK {
		t.Error(res, err)
	}
}

// A clock that is six minutes off is told by how much.
func TestACallByAClockThatIsOffIsToldByHowMuch(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for stamp, want := range map[string]string{
		at(6 * time.Minute):  `is (6m0|5m59)s ahead of the clock here`,
		at(-6 * time.Minute): `is (6m0|6m1)s behind the clock here`,
		"":                   "is missing",
	} {
		err := worker.Believe([]byte("key"), http.Header{"Webhook-Id": {"x/1"}, "Webhook-Timestamp": {stamp}}, "x", nil)
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%q: %v, want %q", stamp, err, want)
		}
	}
}

// The kit takes the same secrets as a dispatcher, and no others.
func TestTheKitReadsASecretAsADispatcherDoes(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24)): true, "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 64)): true,
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)): false, "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)): false,
		base64.StdEncoding.EncodeToString(make([]byte, 32)): false, "whsec_" + strings.Repeat("-", 32): false, "hunter2": false,
	} {
		key, err := remote.ParseSecret(text)
		w := worker.New(worker.Options{Secret: text})
		worker.Handle(w, typ, sent)
		a := remotetest.Client(t).Dispatch(remote.Signed(t.Context(), key), remotetest.Call(serve(t, w), 1))
		if (err == nil) != good || (a.Class == "") != good {
			t.Errorf("%s: good is %v, dispatcher %v, kit %+v", text, good, err, a)
		}
	}
}

func TestAWorkerWithASecretThatIsNoneBelievesNothing(t *testing.T) {
	t.Parallel()
	w := worker.New(worker.Options{Secret: "hunter2"})
	worker.Handle(w, typ, sent)
	if a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(serve(t, w), 1)); a.Class != outbox.ClassBlocked || !strings.Contains(a.Message, "whsec_") {
		t.Errorf("%+v", a)
	}
	if err := w.Run(t.Context(), "127.0.0.1:0"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
