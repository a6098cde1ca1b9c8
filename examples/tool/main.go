// Command tool is a whole tool of Postern's leader: it adds two numbers.
//
//	tool [-fail N] [-key whpk_...] ADDRESS
//
// GET /meta says what it takes and answers, GET /health whether it is ready, POST /invoke does it. The same call comes
// again if its answer was lost: it has the same Idempotency-Key, and gets the same answer. With -fail the first N calls
// fail with HTTP 503, so that one sees how they are tried again. With -key only calls are answered that this key has
// signed.
package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Of what is answered exactly one variant is there: ok, or an error of its own, which is an answer like any other.
const meta = `{
  "fqn": "xyz.postern.math.add@1",
  "type": "offchain",
  "url": "http://%s",
  "description": "Adds two whole numbers.",
  "input_schema": {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": false
  },
  "output_schema": {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "oneOf": [
      {"type": "object", "properties": {"ok": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}}, "required": ["ok"], "additionalProperties": false},
      {"type": "object", "properties": {"err": {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}}, "required": ["err"], "additionalProperties": false}
    ]
  }
}`

type input struct {
	A *int64 `json:"a"`
	B *int64 `json:"b"`
}

type output struct {
	Ok  *sum    `json:"ok,omitempty"`
	Err *reason `json:"err,omitempty"`
}

type sum struct {
	Sum int64 `json:"sum"`
}

type reason struct {
	Reason string `json:"reason"`
}

func add(in input) output {
	a, b := *in.A, *in.B
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return output{Err: &reason{"the sum is beyond 64 bits"}}
	}
	return output{Ok: &sum{a + b}}
}

// tool remembers what it answered, by the key of the call.
type tool struct {
	address string
	key     ed25519.PublicKey // of who may call; nil: anybody

	mu       sync.Mutex
	fail     int
	answered map[string]answer
}

type answer struct {
	input [sha256.Size]byte
	body  []byte
}

// most is how many answers are kept: those whose calls may still come again.
const most = 10_000

func (t *tool) invoke(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		refuse(w, http.StatusBadRequest, "body_unreadable", err.Error())
		return
	}
	if t.key != nil {
		if err := verify(r, body, "http://"+t.address+"/invoke", t.key, time.Now()); err != nil {
			refuse(w, http.StatusUnauthorized, "bad_signature", err.Error())
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail > 0 {
		t.fail--
		refuse(w, http.StatusServiceUnavailable, "warming_up", "try again")
		return
	}
	key, digest := r.Header.Get("Idempotency-Key"), sha256.Sum256(body)
	if before, again := t.answered[key]; again && key != "" {
		if before.input != digest {
			refuse(w, http.StatusConflict, "key_reused", "this call came before with another input")
			return
		}
		_, _ = w.Write(before.body)
		return
	}
	var in input
	if err := json.Unmarshal(body, &in); err != nil || in.A == nil || in.B == nil {
		refuse(w, http.StatusUnprocessableEntity, "input_deserialization_error", "want whole numbers a and b")
		return
	}
	out, err := json.Marshal(add(in))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "output_serialization_error", err.Error())
		return
	}
	if len(t.answered) >= most {
		t.answered = map[string]answer{}
	}
	t.answered[key] = answer{digest, out}
	_, _ = w.Write(out)
}

// refuse answers as tools name their errors.
func refuse(w http.ResponseWriter, status int, code, details string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "details": details})
}

func main() {
	fail := flag.Int("fail", 0, "how many calls fail before the first that does not")
	signer := flag.String("key", "", "public key of who may call, as `postern tool show` shows it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: tool [-fail N] ADDRESS, for example 127.0.0.1:9201")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	t := &tool{address: l.Addr().String(), fail: *fail, answered: map[string]answer{}}
	fmt.Println("listening on", t.address)
	if *signer != "" {
		if t.key, err = publicKey(*signer); err != nil {
			log.Fatal(err)
		}
	}
	log.Fatal((&http.Server{Handler: t.handler(), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 30 * time.Second}).Serve(l))
}

func (t *tool) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /meta", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, meta, t.address) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("POST /invoke", t.invoke)
	return mux
}
