package ui_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// stream looks at a live page.
func (b *browser) stream(path string) *http.Response {
	b.h.t.Helper()
	r, _ := http.NewRequestWithContext(b.h.t.Context(), "GET", b.h.url+path+"?live=1", nil)
	res, err := b.client.Do(r)
	if err != nil {
		b.h.t.Fatal(err)
	}
	b.h.t.Cleanup(func() { res.Body.Close() })
	return res
}

// Those who come to look at a page that is looked at read nothing: they get what was read last.
func TestWhoComesToLookReadsNothing(t *testing.T) {
	t.Parallel()
	const every = time.Second
	h := houseOn(t, pgtest.New(t), "none", every)
	h.scenario("default")
	b := h.browser()
	const page = "/ui/c/default/queues/line"
	b.get(page)
	read(t, b.stream(page), 1)
	begun, before, contexts := time.Now(), h.called("GET /queues/line"), h.called("GET /contexts")
	for range 20 {
		if text := read(t, b.stream(page), 1); !strings.Contains(text, "first") {
			t.Fatalf("a stream begins with %s", text)
		}
	}
	if n, most := h.called("GET /queues/line")-before, int(time.Since(begun)/every)+2; n > most {
		t.Errorf("twenty who came to look had the queue read %d times in %s", n, time.Since(begun))
	}
	if n := h.called("GET /contexts") - contexts; n != 0 {
		t.Errorf("twenty who came to look had the contexts read %d times", n)
	}
	for path, status := range map[string]int{"/ui/c/default/queues/none": 404, "/ui/c/nowhere/now": 404,
		"/ui/c/default/queues": 404} {
		if res := b.stream(path); res.StatusCode != status {
			t.Errorf("the stream of %s: %d", path, res.StatusCode)
		}
	}
}

// A stream begins also where its page has no turn for long, since a browser does not come again to one that was refused
// at first. One session has so many streams, and leaves the others theirs.
func TestAStreamBeginsBeforeItsPageHasHadItsTurn(t *testing.T) {
	t.Parallel()
	h := houseOn(t, pgtest.New(t), "none", time.Hour)
	h.scenario("default")
	const page = "/ui/c/default/queues/line"
	b := h.browser()
	b.get(page) // which names its session
	begun := make(chan int)
	for range 31 {
		go func() { begun <- b.stream(page).StatusCode }()
	}
	began := map[int]int{}
	for range 31 {
		began[<-begun]++
	}
	if began[200] != 30 || began[429] != 1 {
		t.Errorf("the streams of one session: %v", began)
	}
	if status := h.browser().stream(page).StatusCode; status != 200 {
		t.Errorf("the stream of another session: %d", status)
	}
}
