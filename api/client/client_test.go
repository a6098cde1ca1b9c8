package client_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote/signature"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestTheCommittedClientIsWhatIsGenerated(t *testing.T) {
	t.Parallel()
	generator := []string{"tool", "-modfile=internal/tools/go.mod", "oapi-codegen"}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", append(generator, args...)...)
		cmd.Dir = "../.."
		return cmd.CombinedOutput()
	}
	if out, err := run("-version"); err != nil {
		t.Skipf("the generator cannot be had here: %v\n%s", err, out)
	}
	fresh := filepath.Join(t.TempDir(), "client.gen.go")
	if out, err := run("-config", "internal/tools/client/config.yaml", "-o", fresh, "api/openapi.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("client.gen.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("api/client/client.gen.go is not what api/openapi.yaml makes of it (%v): make contract, and read the diff", err)
	}
}

// serve is the real API over a real database.
func serve(t *testing.T) *client.Client {
	t.Helper()
	s := pgtest.New(t).Store(t, 4)
	server := httptest.NewServer(httpapi.New(httpapi.Config{Store: s, Ingester: pg.NewIngester(s.Store), Auth: "none", Version: "test"}).Handler())
	t.Cleanup(server.Close)
	return client.New(server.URL + "/")
}

func TestAClientPostsReadsListsAndIsToldWhatWasWrong(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), serve(t)
	d, err := c.PutDispatcher(ctx, "PAY", nil, &client.DispatcherSettings{WorkerURL: "http://worker.example/"})
	if err != nil || d.Status != http.StatusCreated || *d.Body.Retry.Initial != "15s" {
		t.Fatalf("%+v, %v", d, err)
	}
	queue, digits := "ada", `{"amount": 123456789012345678901234567890.10}`
	in := &client.TransactionInput{Queue: &queue, Type: "PAY", Data: json.RawMessage(digits), Tags: map[string]string{"k": "v"}}
	posted, err := c.PostTransaction(ctx, &client.PostTransactionParams{IdempotencyKey: "a-1"}, in)
	if err != nil || posted.Status != http.StatusCreated || posted.Header.Get("Location") != "/transactions/"+posted.Body.ID {
		t.Fatalf("%+v, %v", posted, err)
	}
	again, err := c.PostTransaction(ctx, &client.PostTransactionParams{IdempotencyKey: "a-1"}, in)
	if err != nil || again.Status != http.StatusOK || again.Header.Get("Idempotent-Replay") != "true" || again.Body.ID != posted.Body.ID {
		t.Errorf("%+v, %v", again, err)
	}
	in.Data = json.RawMessage(`{}`)
	_, err = c.PostTransaction(ctx, &client.PostTransactionParams{IdempotencyKey: "a-1"}, in)
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != "idempotency_conflict" || p.Retryable || p.AdditionalProperties["existing"] == nil || p.Error() == "" {
		t.Errorf("the same key with another body: %+v, %v", p, err)
	}
	one, err := c.GetTransactionByUID(ctx, "a-1", nil)
	if err != nil || !bytes.Contains(one.Body.Data, []byte("123456789012345678901234567890.10")) || one.Body.Error != nil {
		t.Errorf("%s, %v", one.Body.Data, err)
	}
	same, err := c.GetTransaction(ctx, one.Body.ID, &client.GetTransactionParams{IfNoneMatch: one.Header.Get("ETag")})
	if err != nil || same.Status != http.StatusNotModified || same.Body.ID != "" {
		t.Errorf("%+v, %v", same, err)
	}
	for filter, n := range map[*client.ListTransactionsParams]int{
		{State: []string{"WAITING", "RETRY"}, Include: []client.ListTransactionsParamsInclude{"data", "result"}}: 1,
		{State: []string{"DONE"}}:                                           0,
		{ReceivedAfter: time.Now().Add(time.Hour)}:                          0,
		{ReceivedAfter: time.Now().Add(-time.Hour), Queue: []string{queue}}: 1,
	} {
		if list, err := c.ListTransactions(ctx, filter); err != nil || len(list.Body.Items) != n || list.Body.Items == nil {
			t.Errorf("%+v: %+v, %v", filter, list, err)
		}
	}
	if gone, err := c.DeleteDispatcher(ctx, "PAY", &client.DeleteDispatcherParams{Force: new(true)}); err != nil || gone.Status != http.StatusNoContent {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err = c.GetQueue(ctx, "a/b?c"); !errors.As(err, &p) || p.Code != "invalid" && p.Code != "not_found" {
		t.Errorf("a name that is none: %v", err)
	}
}

func TestWhatIsNoPosternIsToldFromARefusal(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err := client.New(other.URL).GetLimits(t.Context())
	var p *client.Problem
	if err == nil || errors.As(err, &p) {
		t.Errorf("somebody else's 404 is %v", err)
	}
}

// A connection may end when a server has handled a signed request, before it answers. net/http sends such a request
// again as it was signed, which is refused; the client signs it anew then, and gets the answer. A request that is
// not safe to send again is not sent again.
func TestASignedRequestWhoseConnectionDiesIsSignedAnew(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), pgtest.New(t).Store(t, 4)
	api := httpapi.New(httpapi.Config{Store: s, Ingester: pg.NewIngester(s.Store), Auth: "required",
		Registration: "open", Version: "test"}).Handler()
	var deaf atomic.Bool
	var came atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		if !deaf.CompareAndSwap(true, false) {
			api.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	t.Cleanup(server.Close)
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(server.URL)
	c.HTTP = server.Client()
	c.Sign = func(r *http.Request, body []byte) error {
		return signature.Signer{Key: key}.Sign(r.Header, r.Method, r.URL.String(), body, time.Now())
	}
	brings := &client.PostActorJSONRequestBody{PublicKeys: []string{base64.StdEncoding.EncodeToString(public)}}
	ann, err := c.PostActor(ctx, nil, brings)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutContext(ctx, "shop", nil, &client.PutContextJSONRequestBody{}); err != nil {
		t.Fatal(err)
	}
	worker := &client.DispatcherSettings{WorkerURL: "http://worker.example/"}
	if _, err := c.PutDispatcher(ctx, "PAY", nil, worker); err != nil {
		t.Fatal(err)
	}
	deaf.Store(true)
	if got, err := c.GetActor(ctx, ann.Body.ID); err != nil || got.Body.ID != ann.Body.ID {
		t.Errorf("a read: %+v, %v", got, err)
	}
	in := &client.TransactionInput{Type: "PAY", Data: json.RawMessage(`{}`)}
	deaf.Store(true)
	posted, err := c.PostTransaction(ctx, &client.PostTransactionParams{IdempotencyKey: "once"}, in)
	if err != nil || posted.Status != http.StatusOK || posted.Header.Get("Idempotent-Replay") != "true" {
		t.Errorf("a post under a key: %+v, %v", posted, err)
	}
	deaf.Store(true)
	before := came.Load()
	if posted, err = c.PostTransaction(ctx, nil, in); err == nil || came.Load() != before+1 {
		t.Errorf("a post without a key came %d times: %+v", came.Load()-before, posted)
	}
}
