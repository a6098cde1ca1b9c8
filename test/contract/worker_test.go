package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// workers is the document of what a worker serves.
func workers(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../api/worker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestTheContractOfWorkersIsAnOpenAPIDocument(t *testing.T) {
	if err := workers(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// tap stands before a worker and holds what passes against the document: a request that it does not allow, or an answer
// that it does not promise, is an error, and so is a header or a member that it does not name.
type tap struct {
	t      *testing.T
	worker http.Handler
	router routers.Router

	mu   sync.Mutex
	seen map[string]bool // operation, a slash, and the header or the path of a member in its body
}

func newTap(t *testing.T, w http.Handler) (p *tap, url string) {
	t.Helper()
	doc := workers(t)
	doc.Servers = nil // wherever it listens
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	p = &tap{t: t, worker: w, router: router, seen: map[string]bool{}}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, s.URL
}

// plain are the headers of every HTTP client.
var plain = []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent"}

func (p *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	route, params, err := p.router.FindRoute(r)
	if err != nil {
		p.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		return
	}
	id := route.Operation.OperationID
	in := &openapi3filter.RequestValidationInput{
		Request:    r,
		PathParams: params,
		Route:      route,
		Options:    &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
		p.t.Errorf("what %s is sent does not fit: %v\n%s", id, err, body)
	}
	p.note(route, r.Header, body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	p.worker.ServeHTTP(rec, r)
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: rec.Code, Header: rec.Header(), Options: in.Options}
	out.SetBodyBytes(rec.Body.Bytes())
	if err := openapi3filter.ValidateResponse(r.Context(), out); err != nil {
		p.t.Errorf("what %s is answered does not fit: %v\n%s", id, err, rec.Body)
	}
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

// note keeps which headers and members came, and refuses those that the document does not name.
func (p *tap) note(route *routers.Route, h http.Header, body []byte) {
	id, named := route.Operation.OperationID, declared(route.Operation)
	var came []string
	for name := range h {
		if !slices.Contains(plain, name) {
			came = append(came, id+"/"+name)
		}
	}
	var v any
	if len(body) > 0 {
		if err := json.Unmarshal(body, &v); err != nil {
			p.t.Error(err)
		}
		came = append(came, members(id, v)...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range came {
		if !named[name] && !below(named, name) {
			p.t.Errorf("%s came, and the document does not name it", name)
		}
		p.seen[name] = true
	}
}

// members lists the paths of what is in a body.
func members(at string, v any) (list []string) {
	if m, ok := v.(map[string]any); ok {
		for k, v := range m {
			list = append(append(list, at+"/"+k), members(at+"/"+k, v)...)
		}
	}
	return list
}

// below says whether something is inside of what the document leaves open.
func below(named map[string]bool, name string) bool {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if open, ok := named[name[:i]+"/*"]; ok {
			return open
		}
	}
	return false
}

// declared lists the headers and members that an operation names; a /* follows a member of any shape.
func declared(op *openapi3.Operation) map[string]bool {
	names := map[string]bool{}
	for _, p := range op.Parameters {
		if p.Value.In == "header" {
			names[op.OperationID+"/"+http.CanonicalHeaderKey(p.Value.Name)] = true
		}
	}
	if op.RequestBody != nil {
		schema(names, op.OperationID, op.RequestBody.Value.Content.Get("application/json").Schema.Value)
	}
	return names
}

func schema(names map[string]bool, at string, s *openapi3.Schema) {
	for name, sub := range s.Properties {
		names[at+"/"+name] = true
		if v := sub.Value; v.Type.Includes("object") && len(v.Properties) == 0 {
			names[at+"/"+name+"/*"] = true
		}
		schema(names, at+"/"+name, sub.Value)
	}
	for _, part := range s.AllOf {
		schema(names, at, part.Value)
	}
}

// all wants every header and member of the document to have come.
func (p *tap) all() {
	p.t.Helper()
	for path, item := range workers(p.t).Paths.Map() {
		for method, op := range item.Operations() {
			for name := range declared(op) {
				if !p.seen[name] && !strings.HasSuffix(name, "/*") {
					p.t.Errorf("%s %s: the document names %s, which never came", method, path, name)
				}
			}
		}
	}
}

// exercise makes every call of a worker, in all forms that Postern has for them. It returns how many were accepted.
func exercise(t *testing.T, url string) (accepted int) {
	t.Helper()
	client := remotetest.Client(t)
	signed := remote.Signed(t.Context(), []byte("0123456789abcdef0123456789abcdef"))
	first, second, unordered := remotetest.Call(url, 1), remotetest.Call(url, 1), remotetest.Call(url, 2)
	second.Attempt, second.Retries, second.Fee, second.Nonce = 2, 1, "110", "4"
	second.UID, second.Hash, second.PreviousHashes, second.SenderWorkerURL = "pay-é", "5Ja1", []string{"5Ja1"}, url
	second.Attributes = json.RawMessage(`{"cap": "0xa1", "gas_coin": "0xb1"}`)
	second.Before = remote.Baton("5Ja1", []byte(`{"error": {"code": 20203}}`), []byte(`{"class": "retry"}`))
	second.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	second.Data = json.RawMessage(`[1, {"to": null}]`)
	unordered.ID.Queue, unordered.Queue, unordered.Line, unordered.Account, unordered.SenderState = 9, "", outbox.Line{}, "", ""
	var hashes []string
	for _, ctx := range []context.Context{t.Context(), signed} {
		for _, call := range []remote.Call{first, second, unordered} {
			a := client.Dispatch(ctx, call)
			if a.Class == "" {
				accepted++
			}
			if a.Result.Hash != "" {
				hashes = append(hashes, a.Result.Hash)
			}
			client.Status(ctx, url, call.Type, call.Token(), "")
		}
		client.Status(ctx, url, first.Type, "never-seen.1", "")
		client.Status(ctx, url, first.Type, "", "5Jnever")
		client.StatusBatch(ctx, url, first.Type, append(hashes, "5Jnever"))
		second.State = outbox.DONE
		client.Hook(ctx, second, outbox.OnSuccess, json.RawMessage(`{"hash":"5Ja1","done":{"n":1},"data":[1]}`), nil,
			second.ID.HookToken(second.PostedAt, outbox.OnSuccess))
		second.State = outbox.FAILED
		client.Hook(ctx, second, outbox.OnFailure, json.RawMessage(`{"hash":"5Ja1","data":[1]}`), json.RawMessage(`{"class":"rejected","code":"no"}`),
			second.ID.HookToken(second.PostedAt, outbox.OnFailure))
	}
	if _, err := client.MaxRetries(t.Context(), url, first.Type); err != nil {
		t.Error(err)
	}
	client.Probes(t.Context(), strings.Replace(url, "http://", "http://user:pass@", 1), first.Type)
	return accepted
}

func TestWhatWorkersAreSentAndAnswerFitsTheirContract(t *testing.T) {
	t.Run("the fake", func(t *testing.T) {
		fake, five := remotetest.NewFake(t), 5
		fake.SetMaxRetries(&five)
		tap, url := newTap(t, fake)
		if n := exercise(t, url); n != 6 {
			t.Errorf("%d of 6 dispatches were accepted", n)
		}
		tap.all()
	})
	t.Run("the kit", func(t *testing.T) {
		w := worker.New(worker.Options{Status: func(_ context.Context, q worker.Question) (worker.Status, error) {
			if strings.HasPrefix(q.Hash, "h-") {
				return worker.Included(7, 3), nil
			}
			return worker.Unknown(), nil
		}})
		worker.Handle(w, "SEND_CLAIM_VOTE", kitHandler)
		hook := func(context.Context, worker.Ended[any]) error { return nil }
		worker.OnSuccess(w, "SEND_CLAIM_VOTE", hook)
		worker.OnFailure(w, "SEND_CLAIM_VOTE", hook)
		w.MaxRetries("SEND_CLAIM_VOTE", 3)
		_, url := newTap(t, w.Handler())
		if n := exercise(t, url); n != 4 {
			t.Errorf("%d of 6 dispatches were accepted", n)
		}
	})
	t.Run("the kit with nothing", func(t *testing.T) {
		_, url := newTap(t, worker.New(worker.Options{}).Handler())
		if n := exercise(t, url); n != 0 {
			t.Errorf("%d of 6 dispatches were accepted", n)
		}
	})
}

// kitHandler sends a first attempt, blocks a second one, and is done with what has no queue.
func kitHandler(_ context.Context, c worker.Call[any]) (worker.Answer, error) {
	switch {
	case c.Queue == "":
		return worker.Done(map[string]int{"n": 1}), nil
	case c.Attempt == 2:
		return worker.Answer{}, worker.BlockedSender("no_gas", "the account is empty", c.Deadline)
	}
	return worker.Sent("h-" + c.Transaction).WithNonce("4").WithFee("100").WithData([]int{1}), nil
}

// The examples are what somebody who writes a worker copies: each must mean what stands beside it.
func TestExamplesOfAnswersMeanWhatTheContractSays(t *testing.T) {
	var status int
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	defer s.Close()
	client, call := remotetest.Client(t), remotetest.Call(s.URL, 1)
	n := 0
	each(t, "/dispatch/{type}", "x-postern-class", func(name string, code int, value []byte, want string) {
		status, body = code, value
		n++
		if a := client.Dispatch(t.Context(), call); string(a.Class) != want || want != "" && !a.Told {
			t.Errorf("%s, HTTP %d %s: class %q, told %t, want %q (%s)", name, code, value, a.Class, a.Told, want, a.Message)
		}
	})
	each(t, "/status/{type}", "x-postern-state", func(name string, code int, value []byte, want string) {
		status, body = code, value
		n++
		if st := client.Status(t.Context(), s.URL, "PAY", "", "5Ja1"); string(st.State) != want {
			t.Errorf("%s, HTTP %d %s: %+v, want %q", name, code, value, st, want)
		}
	})
	if n < 18 {
		t.Errorf("only %d examples", n)
	}
}

// each calls f for the examples of the answers of a path, with what stands beside each under a key.
func each(t *testing.T, path, key string, f func(name string, code int, value []byte, want string)) {
	t.Helper()
	for status, response := range workers(t).Paths.Find(path).Post.Responses.Map() {
		content := response.Value.Content.Get("application/json")
		if content == nil {
			continue
		}
		for name, example := range content.Examples {
			want, ok := example.Value.Extensions[key].(string)
			value, err := json.Marshal(example.Value.Value)
			var code int
			if _, scan := fmt.Sscan(status, &code); !ok || err != nil || scan != nil {
				t.Errorf("the example %s of %s: %s %v, %v, %v", name, path, key, example.Value.Extensions[key], err, scan)
				continue
			}
			f(name, code, value, want)
		}
	}
}
