package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each block of docs/psql.md and each file of sql/report is run by psql against a process that works, after a
// transaction that was retried and one that stands.
func TestTheTenQuestionsInPSQLAreAnswered(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("psql is not installed, so the blocks of docs/psql.md are not run: apt-get install postgresql-client")
	}
	page, err := os.ReadFile("../../docs/psql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, database, api := developing(t)
	psql := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "psql",
			append([]string{"-X", "-v", "ON_ERROR_STOP=1", database}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("psql %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	at := []string{"POSTERN_URL=" + api}
	postern(t, at, "api", "PUT", "/dispatchers/HELLO", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	postern(t, at, "post", "HELLO", "--queue", "claim-7f3", "--uid", "order-4711", "--wait", "10s").want(t, 0)
	postern(t, at, "pause", "queues/claim-7f3", "--reason", "audit").want(t, 0)
	postern(t, at, "post", "HELLO", "--queue", "claim-7f3", "--uid", "order-4712").want(t, 0)
	psql("-c", `SELECT postern.roll_on(date_trunc('hour', now(), 'UTC'), 1000, NULL)`)
	want := []string{"DONE", "done", "order-4712", "order-4711", "as_of", "lever", "HELLO", "HELLO", "sample_id",
		"busy_share_1h", "audit", "transactions"}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != len(want) {
		t.Fatalf("the page has %d blocks, and we know what %d say", len(blocks), len(want))
	}
	for i, b := range blocks {
		if out := psql("-c", b[1]); !strings.Contains(out, want[i]) {
			t.Errorf("%s\nshows\n%s, want %q in it", b[1], out, want[i])
		}
	}
	files, err := filepath.Glob("../../sql/report/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		psql("-v", "ref=order-4711", "-v", "queue=claim-7f3", "-v", "object=/queues/claim-7f3", "-f", f)
	}
}
