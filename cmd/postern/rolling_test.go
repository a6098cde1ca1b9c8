package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// balancer is a small reverse proxy before several servers. It asks each for /readyz all the time, and heeds what it
// heard two seconds ago, as those do that ask rarely or have to tell others. It repeats nothing. A server that says
// that it starts or stops is taken out, and so is one that refuses three connections in a row; a check that is late or
// finds the database slow takes none out, since this machine may be busy and the test is about restarts.
type balancer struct {
	servers []*server
	next    atomic.Int64
}

type server struct {
	url   string
	proxy *httputil.ReverseProxy
	used  atomic.Bool // it is sent requests
}

// learns is how long a balancer takes to heed what it has heard.
const learns = 2 * time.Second

func newBalancer(ctx context.Context, urls ...string) *balancer {
	b := &balancer{}
	for _, at := range urls {
		to, _ := url.Parse(at)
		s := &server{url: at, proxy: httputil.NewSingleHostReverseProxy(to)}
		s.proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
		s.proxy.ModifyResponse = func(res *http.Response) error { res.Header.Set("Server", at); return nil }
		s.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "balancer: "+at+": "+err.Error(), http.StatusBadGateway)
		}
		b.servers = append(b.servers, s)
		go s.watch(ctx)
	}
	return b
}

func (s *server) watch(ctx context.Context) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ready, failed := false, 0 // refused connections in a row
	for ctx.Err() == nil {
		res, err := client.Get(s.url + "/readyz")
		said := ""
		if err == nil {
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			said = string(b)
		}
		switch {
		case err == nil && res.StatusCode == http.StatusOK:
			ready, failed = true, 0
		case strings.Contains(said, "starting or stopping"):
			ready = false
		case errors.Is(err, syscall.ECONNREFUSED):
			failed++
			ready = ready && failed < 3
		}
		now := ready
		time.AfterFunc(learns, func() { s.used.Store(now) })
		time.Sleep(100 * time.Millisecond)
	}
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first := int(b.next.Add(1))
	for i := range b.servers { // each is looked at once, whatever turns other requests take meanwhile
		if s := b.servers[(first+i)%len(b.servers)]; s.used.Load() {
			s.proxy.ServeHTTP(w, r)
			return
		}
	}
	http.Error(w, "balancer: no server is ready", http.StatusBadGateway)
}

// Two processes are restarted in turn, under 200 posts a second through a balancer that learns of readiness two seconds
// late: each post is accepted, and is there once. POSTERN_TEST_RESTARTS says how often, with the delay of the
// manifests; `make test` restarts each once, with a longer delay, since the balancer's own questions are late beside
// other tests.
func TestRestartsInTurnLoseNoPost(t *testing.T) {
	t.Parallel()
	load := &load{t: t}
	t.Cleanup(load.sayFirst) // after what the processes said, where it is found
	restarts, err := strconv.Atoi(os.Getenv("POSTERN_TEST_RESTARTS"))
	delay := "5s"
	if err != nil {
		restarts, delay = 1, "12s"
	}
	db := pgtest.New(t)
	env := append(database(db.URL), "POSTERN_AUTH=none", "POSTERN_METRICS_LISTEN=off", "POSTERN_DRAIN_DELAY="+delay)
	urls, processes := make([]string, 2), make([]*process, 2)
	begin := func(i int) {
		processes[i] = start(t, env, "serve", "--listen", strings.TrimPrefix(urls[i], "http://"))
		await(t, processes[i], urls[i])
	}
	for i := range urls {
		urls[i] = "http://" + freeAddress(t)
		begin(i)
	}
	ctx, over := context.WithCancel(t.Context())
	defer over()
	b := newBalancer(ctx, urls...)
	front := httptest.NewServer(b)
	t.Cleanup(front.Close)
	call(t, http.MethodPut, urls[0]+"/dispatchers/THING", `{"worker_url": "noop:"}`, 201, nil)
	used := func(s *server) {
		for end := time.Now().Add(time.Minute); !s.used.Load(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the balancer does not use %s", s.url)
			}
		}
	}
	for _, s := range b.servers {
		used(s)
	}

	load.url, load.began = front.URL, time.Now()
	stop := sync.OnceFunc(load.begin(200))
	t.Cleanup(stop)
	for range restarts {
		for i, s := range b.servers {
			t.Logf("after %s: %s is asked to stop", time.Since(load.began), urls[i])
			processes[i].signal(syscall.SIGTERM)
			if code := processes[i].wait(); code != 0 {
				t.Errorf("asked to stop, it ended with %d", code)
			}
			begin(i)
			for end := time.Now().Add(learns); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
			used(s)
		}
	}
	stop()
	var rows, keys int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT uid) FROM postern.task`).Scan(&rows, &keys); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d posts, %d refused, %d rows, %d keys", load.sent.Load(), load.refused.Load(), rows, keys)
	if n := load.refused.Load(); n > 0 {
		t.Errorf("%d of %d posts were refused", n, load.sent.Load())
	}
	if n := int(load.sent.Load()); n < 200 || rows != n || keys != n {
		t.Errorf("of %d posts there are %d, under %d keys", n, rows, keys)
	}
}

// load posts, each under a key of its own and none twice, and keeps why the first post was refused.
type load struct {
	t             *testing.T
	url           string
	began         time.Time
	sent, refused atomic.Int64
	first         atomic.Pointer[string] // why the first post was refused
}

func (l *load) sayFirst() {
	if said := l.first.Load(); said != nil {
		l.t.Errorf("the first post was refused %s", *said)
	}
}

// begin posts so often a second until stop is called, which waits for the last answers. While 100 posts have no answer
// it posts no other one, so that a slow machine gets what it can do.
func (l *load) begin(rate int) (stop func()) {
	end, open := make(chan struct{}), make(chan struct{}, 100)
	var posts sync.WaitGroup
	posts.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				select {
				case open <- struct{}{}:
				default:
					continue
				}
				n := l.sent.Add(1)
				posts.Go(func() {
					l.post(n)
					<-open
				})
			case <-end:
				return
			}
		}
	})
	return func() { close(end); posts.Wait() }
}

func (l *load) post(n int64) {
	body := fmt.Sprintf(`{"queue": "q%d", "type": "THING", "uid": "u%d"}`, n%50, n)
	res, err := http.Post(l.url+"/transactions", "application/json", strings.NewReader(body))
	said := fmt.Sprint(err)
	if err == nil {
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		var tx struct{ UID string }
		if json.Unmarshal(b, &tx) == nil && res.StatusCode == http.StatusCreated && tx.UID == fmt.Sprint("u", n) {
			return
		}
		said = res.Header.Get("Server") + ": " + res.Status + ": " + string(b)
	}
	l.refused.Add(1)
	said = fmt.Sprintf("after %s: %s", time.Since(l.began), said)
	l.first.CompareAndSwap(nil, &said)
}
