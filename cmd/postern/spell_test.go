package main

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A lever is the command that pulls it, with all that its body says, in words that a shell takes as they are.
func TestALeverIsSpelledAsACommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, body, context, want string }{
		{"POST", "/events/x/redrive", "{}", "", "postern redrive events/x"},
		{"POST", "/senders/s/unblock", "{}", "shop", "postern unblock senders/s --context shop"},
		{"POST", "/sources/s/rewind", "{}", "", "postern api POST /sources/s/rewind"},
		{"POST", "/nodes/n/bury", "{}", "", "postern bury nodes/n"},
		{"POST", "/transactions/x/abandon", `{"reason": "..."}`, "", "postern abandon x --reason ..."},
		{"POST", "/transactions/x/move", `{"place": "head"}`, "", "postern move x --first"},
		{"POST", "/processors/p/tick", "{}", "", "postern processor tick p"},
		{"POST", "/processors/p/evict", `{"id": 7}`, "", "postern processor evict p 7"},
		{"POST", "/processors/p/callbacks/7", `{"payload": "..."}`, "",
			`postern api POST /processors/p/callbacks/7 -d '{"payload":"..."}'`},
		{"POST", "/authorizations/a%20b%2Fit's/executions/7/retry", "{}", "",
			`postern processor retry 'a b/it'\''s' 7`},
		{"PATCH", "/dispatchers/T", `{"worker_url": "http://w/?a=1&b=2"}`, "",
			`postern api PATCH /dispatchers/T -d '{"worker_url":"http://w/?a=1&b=2"}'`},
		{"GET", "/quarantine", "{}", "", "postern quarantine status"},
		{"GET", "/transactions/x/why", "{}", "", "postern why x"},
		{"GET", "/processors/p/batches/7/why", "{}", "shop", "postern why processors/p/batches/7 --context shop"},
		{"POST", "/quarantine/reconcile", `{"type": "PAY", "reason": "..."}`, "",
			"postern quarantine reconcile dispatchers/PAY --reason ..."},
		{"POST", "/quarantine/release", `{"context": "shop", "type": "PAY", "reason": "..."}`, "",
			"postern quarantine release contexts/shop dispatchers/PAY --reason ..."},
	} {
		lever, err := parse([]byte(`{"method": "` + c.method + `", "path": "` + c.path + `", "body": ` + c.body + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := leverCommand(lever, c.context); got != c.want {
			t.Errorf("%s %s %s is %q, want %q", c.method, c.path, c.body, got, c.want)
		}
	}
}

// pasted runs a command line as somebody does who pastes it: postern is this program, and the API is at.
func pasted(t *testing.T, at []string, line string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = append(append(os.Environ(), "PATH="+programs(t)+":"+os.Getenv("PATH")), at...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// programs is a directory in which this program is called postern.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "postern")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// understood says whether the command line was taken: it may be refused, but neither by the shell nor for what it says.
func understood(code int, said string) bool {
	return code == 0 || code == exitBad && !strings.Contains(said, "not_found")
}

// Each lever that postern why prints, of each way in which a head can stand, is a command that the shell and this
// program take as it is printed.
func TestTheCommandsThatWhyPrintsAreTaken(t *testing.T) {
	t.Parallel()
	lever := regexp.MustCompile(`(?m)^   lever (.*)$`)
	for _, c := range pgworld.Stands {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := pgworld.New(t)
			id := w.Stood(c)
			api := httpapi.New(httpapi.Config{
				Store:    w.S,
				Ingester: pg.NewIngester(w.S.Store),
				Log:      slog.New(slog.DiscardHandler),
				Auth:     "none",
				Version:  "test",
			})
			server := httptest.NewUnstartedServer(nil)
			server.Config = api.Server()
			server.Start()
			t.Cleanup(server.Close)
			at := []string{"POSTERN_URL=" + server.URL}
			why, err := parse([]byte(postern(t, append(at, "POSTERN_OUTPUT=json"), "why", id.String()).stdout))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			printWhy(&b, paper{width: 10000}, why, "", time.Now())
			for _, m := range lever.FindAllStringSubmatch(b.String(), -1) {
				if code, said := pasted(t, at, m[1]); !understood(code, said) {
					t.Errorf("%s: exit code %d: %s", m[1], code, said)
				}
			}
		})
	}
}
