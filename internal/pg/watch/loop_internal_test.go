package watch

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The last link is closed while the server is asked, the answer comes, and a link is opened before the loop looks
// again: the loop goes on, and no second one starts beside it.
func TestAnAnswerEndsNoLoop(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig("postgres://nowhere/")
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		c, _ := net.Pipe()
		return c, nil
	}
	w := Configure(cfg)
	w.running, w.probes = true, 1
	go w.run()
	w.answers <- answer{began: time.Now()}
	for len(w.answers) > 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // it judges
	l, err := w.opened(t.Context(), "tcp", "nowhere:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	time.Sleep(50 * time.Millisecond) // another would start
	n := 0
	for end := time.Now().Add(time.Minute); n == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		n = loopsOf(w)
	}
	if n != 1 {
		t.Errorf("%d loops look at the same links", n)
	}
}

// loopsOf counts the loops of a watch.
func loopsOf(w *Watch) int {
	all := make([]byte, 1<<23)
	return strings.Count(string(all[:runtime.Stack(all, true)]), fmt.Sprintf("(*Watch).run(%p", w))
}
