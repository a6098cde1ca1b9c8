// Command receiver is the smallest endpoint of a webhook that deserves trust: it verifies what comes, acts once
// per message, and answers quickly. Standard library only.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9797", "where to be called")
	flag.Parse()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(key) == 0 {
		log.Fatal("WEBHOOK_SECRET: want the secret that was shown when the subscription was created")
	}
	log.Fatal(http.ListenAndServe(*listen, &receiver{key: key, seen: map[string]bool{}}))
}

type receiver struct {
	key  []byte
	mu   sync.Mutex
	seen map[string]bool // in your database, in the transaction that acts: a restart forgets this map
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 8<<20)) // room for the largest data and result
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if !r.verify(q.Header, body) {
		http.Error(w, "not signed by whom I know", http.StatusUnauthorized)
		return
	}
	var event struct {
		Type string
		Data struct{ UID, Queue, State string }
	}
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := q.Header.Get("webhook-id"); !r.seen[id] { // it may come again, under the same id
		r.seen[id] = true
		fmt.Println(event.Type, event.Data.Queue, event.Data.UID, event.Data.State)
	}
}

// verify checks the signature over id, time and body, and that it is not an old one sent again.
func (r *receiver) verify(h http.Header, body []byte) bool {
	at, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if age := time.Since(time.Unix(at, 0)); err != nil || age > 5*time.Minute || age < -5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), at, body)
	for s := range strings.FieldsSeq(h.Get("webhook-signature")) { // several while a secret is rotated
		signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1,"))
		if err == nil && hmac.Equal(signature, mac.Sum(nil)) {
			return true
		}
	}
	return false
}
