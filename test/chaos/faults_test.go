package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Bodies that no process answers have broken nothing.
func TestPoisonThatIsNotAnsweredHasBrokenNothing(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(400) }))
	defer api.Close()
	for url, nothing := range map[string]bool{
		api.URL: false,
		fmt.Sprintf("http://127.0.0.1:%d", freePort()): true,
	} {
		c, err := newClient("key", []string{url}, filepath.Join(t.TempDir(), "client.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		w := &world{client: c}
		poisonPosts(t.Context(), w, rand.New(rand.NewPCG(1, 1)))
		if why := w.brokeNothing(); (why != "") != nothing {
			t.Errorf("it says %q, want that it has broken nothing: %t", why, nothing)
		}
	}
}

// Each fault of a line has broken something if, and only if, a request came along it.
func TestAFaultOfALineThatHitsNothingHasBrokenNothing(t *testing.T) {
	far := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer far.Close()
	for _, f := range faults {
		if !strings.HasPrefix(f.name, "line-") || f.name == "line-cut" {
			continue
		}
		for _, comes := range []bool{false, true} {
			t.Run(fmt.Sprint(f.name, " ", comes), func(t *testing.T) {
				l, err := newLine([]string{far.URL})
				if err != nil {
					t.Fatal(err)
				}
				defer l.server.Close()
				defer l.front.listener.Close()
				w := &world{pair: &pair{line: l}}
				ctx, enough := context.WithCancel(t.Context())
				defer enough()
				if !comes {
					enough()
				}
				url := fmt.Sprintf("http://127.0.0.1:%d", l.front.port())
				ask(ctx, enough, url, func() bool { return l.touched() > 0 })
				f.do(ctx, w, rand.New(rand.NewPCG(1, 1)))
				if why := w.brokeNothing(); (why == "") != comes {
					t.Errorf("it says %q", why)
				}
			})
		}
	}
}

// ask makes requests beside a fault until they have met it, and calls enough then.
func ask(ctx context.Context, enough func(), url string, met func() bool) {
	c := http.Client{Timeout: 200 * time.Millisecond}
	go func() {
		defer enough()
		for ctx.Err() == nil && !met() {
			if a, err := c.Post(url, "application/json", strings.NewReader("{}")); err == nil {
				a.Body.Close()
			}
		}
	}()
}

// Endorsements that are to be slow have broken something only if there was one.
func TestNoEndorsementIsNoneThatIsSlow(t *testing.T) {
	tokens, err := newTokens("")
	if err != nil {
		t.Fatal(err)
	}
	for _, comes := range []bool{false, true} {
		w := &world{domain: &domain{tokens: tokens}}
		ctx, enough := context.WithCancel(t.Context())
		defer enough()
		if !comes {
			enough()
		}
		ask(ctx, enough, tokens.url+"/alice/endorse", func() bool { return tokens.delayedSoFar() > 0 })
		endorserSlow(ctx, w, rand.New(rand.NewPCG(1, 1)))
		if why := w.brokeNothing(); (why == "") != comes {
			t.Errorf("an endorsement comes: %t, and it says %q", comes, why)
		}
	}
}

// A ledger that refuses a reorg has none.
func TestAReorgThatIsRefusedHasBrokenNothing(t *testing.T) {
	for status, nothing := range map[int]bool{200: false, 409: true} {
		ledger := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			out.WriteHeader(status)
		}))
		defer ledger.Close()
		w := &world{domain: &domain{ledger: ledger.URL}}
		reorg(t.Context(), w, nil)
		if why := w.brokeNothing(); (why != "") != nothing {
			t.Errorf("answered with %d, it says %q", status, why)
		}
	}
}

// What broke nothing at another installation has broken nothing, and says nothing of the next fault there.
func TestWhatBreaksNothingElsewhereIsSaid(t *testing.T) {
	w, far := &world{}, &world{}
	far.missed("it did not start")
	w.missedAt(far)
	if why := w.brokeNothing(); why != "it did not start" || far.brokeNothing() != "" {
		t.Errorf("it says %q", why)
	}
	w.missed("near")
	if w.missedAt(w); w.brokeNothing() != "near" {
		t.Error("what broke nothing at the first installation is forgotten")
	}
}
