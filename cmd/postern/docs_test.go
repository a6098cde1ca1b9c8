package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/sequencer"
)

var shell = regexp.MustCompile("(?s)\n```sh\n(.*?)```\n")

// play runs every block of shell of a page, one after the other in one shell, as a reader would, in a directory
// that has the examples; change replaces what is otherwise here. It returns what was printed.
func play(t *testing.T, page string, env []string, change ...string) string {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "psql", "sed", "python3", "pg_dump"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, so the blocks of docs/%s are not run: apt-get install curl postgresql-client python3", tool, page)
		}
	}
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := shell.FindAllStringSubmatch(string(text), -1)
	if strings.Count(string(text), "```sh") != len(blocks) || len(blocks) < 1 {
		t.Fatalf("only %d blocks were read", len(blocks))
	}
	script := "set -eu -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n"
	for _, b := range blocks {
		script += b[1]
	}
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(script, change[i]) {
			t.Fatalf("docs/%s does not say %s", page, change[i])
		}
		script = strings.ReplaceAll(script, change[i], change[i+1])
	}
	dir := t.TempDir()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, dir+"/examples"); err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limit, "bash", "-x", "-c", script)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir,
		append(append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH")), env...), 5*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// example builds a program of examples/.
func example(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", linked, "-o", program,
		"../../examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// onServer takes away what a page left on the server beside its database: after the test, and also after a failed one.
func onServer(t *testing.T, url, stmt string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, strings.TrimPrefix(url, "DATABASE_URL="))
	if err == nil {
		defer c.Close(ctx)
		_, err = c.Exec(ctx, stmt)
	}
	if err != nil {
		t.Error(err)
	}
}

func mustSay(t *testing.T, said string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(said, w) {
			t.Errorf("%q is missing in\n%s", w, said)
		}
	}
}

func TestTheQuickStartWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "quick-start.md", []string{"POSTERN_LISTEN=127.0.0.1:0", "POSTERN_METRICS_LISTEN=127.0.0.1:0"},
		"go build -o bin/ ./cmd/postern\n", "mkdir bin; ln -s "+binary+" bin/postern\n",
		"go build -o bin/ ./examples/post\n", "ln -s "+example(t, "post")+" bin/post\n")
	mustSay(t, said, "hello-4 DONE", "hello-5 is submitted", `"uid":"hello-2"`, `"uid":"hello-3"`, "worker_unreachable",
		"head_of_line", "SenderBound", "DISPATCHING")
}

func TestThePageAboutWorkersWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	worker := example(t, "worker")
	first, second, third := freeAddress(t), freeAddress(t), freeAddress(t)
	said := play(t, "worker.md", installation(t), "go build -o bin/ ./examples/worker\n",
		"mkdir bin; ln -s "+worker+" bin/worker\n", "127.0.0.1:9101", first, "127.0.0.1:9102",
		second, "127.0.0.1:9103", third)
	mustSay(t, said, `"hash"`, "py-0193a000-0000-8000-8000-000000000001", `"sender":"acct-1"`,
		"\n401\n", "signature", "/cents: ")
	page, err := os.ReadFile("../../docs/worker.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../../examples/worker/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	code = "\t" + strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n\t")
	if !strings.Contains(string(program), code) {
		t.Errorf("docs/worker.md shows Go that examples/worker does not have:\n%s", code)
	}
}

func TestThePageAboutOperationWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "operate.md", installation(t))
	mustSay(t, said, "dispatcher_paused", `"state":"DONE"`, `"matched"`)
}

func TestThePageAboutRunningWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	env := installation(t)
	restored := "restored_" + strings.ToLower(rand.Text()) // the server is that of other tests too
	t.Cleanup(func() { onServer(t, env[0], "DROP DATABASE IF EXISTS "+restored) })
	said := play(t, "run.md", env, "restored", restored)
	mustSay(t, said, "POSTERN_SHUTDOWN_GRACE", "postern verify --database-url", restored)
}

func TestThePageAboutFilesOfADeploymentWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "apply.md", installation(t))
	mustSay(t, said, "block_for")
}

func TestThePageAboutRetentionWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "retention.md", installation(t))
	mustSay(t, said, time.Now().UTC().Format("2006-01"), "by the width quarter")
}

func TestThePageAboutRestoresWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "restore.md", installation(t))
	mustSay(t, said, "restored from the backup of 03:00", "quarantined:", "finished", `"state":"DONE"`)
}

func TestThePageAboutChainsWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "chains.md", installation(t), "127.0.0.1:8541", freeAddress(t), "127.0.0.1:8542", freeAddress(t))
	mustSay(t, said, "exclusive_busy", "create-a", `"returned":["`)
}

// ways draws which states of a machine follow one another, without the events that lead there.
func ways(t machine.Table) string {
	drawing := &strings.Builder{}
	drawing.WriteString("```mermaid\nstateDiagram-v2\n    direction LR\n")
	seen := map[[2]string]bool{}
	for _, e := range machine.Arrows(t) {
		way := [2]string{e.From, e.To}
		if e.From == e.To || e.To == machine.Outside || seen[way] {
			continue
		}
		seen[way] = true
		fmt.Fprintf(drawing, "    %s --> %s\n", e.From, e.To)
	}
	return drawing.String() + "```\n"
}

func TestThePageAboutFlowsWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	said := play(t, "flows.md", append(installation(t), "POSTERN_STATE_DIR="+state))
	mustSay(t, said, "\nreport of 2026-11\n", "need_open", "changed=yes", `"3.stdout":"42\n"`, "j2 --> j3",
		`result {"stdout":"2\n"}`)
}

func TestThePageAboutMessagesWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "messages.md", append(installation(t), "POSTERN_STATE_DIR="+t.TempDir()))
	mustSay(t, said, "changed=yes", "awaits_result", `"message":"since yesterday"`, "42")
}

func TestThePageAboutDomainsWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	service := example(t, "domain")
	said := play(t, "domain.md", append(installation(t), "POSTERN_OUTPUT=json"), "go build -o bin/ ./examples/domain\n",
		"mkdir bin; ln -s "+service+" bin/domain\n", "127.0.0.1:9000", freeAddress(t))
	mustSay(t, said, `"ok":true`, `"receipt":{"outcome":"success"`, "it has ended: success")
}

func TestThePageAboutFlowsInSQLWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "sql-flows.md", append(installation(t), "POSTERN_STATE_DIR="+t.TempDir()))
	mustSay(t, said, `{"n": "42"}`, "total: 42")
}

func TestThePageAboutConceptsHasTheMachinesThatRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := ways(sequencer.Transaction); !strings.Contains(string(text), want) {
		t.Errorf("docs/concepts.md does not draw the states of a transaction as they follow: paste\n%s", want)
	}
	for _, table := range []machine.Table{sequencer.Transaction, sequencer.Queue} {
		for _, s := range table.States() {
			if !strings.Contains(string(text), "\n| "+s+" | "+sequencer.Meanings[table.Name+"."+s]+" |") {
				t.Errorf("docs/concepts.md does not say what %s.%s means", table.Name, s)
			}
		}
	}
}

// anchors are those of the headings of a page, as they are made where it is shown.
func anchors(page string) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		letters := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(letters, " ", "-"))
	}
	return list
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestTheLinksOfTheDocsLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "http") {
				continue
			}
			target, err := os.ReadFile(filepath.Join("../../docs", m[1]))
			if err != nil && m[2] != "" || !exists(filepath.Join("../../docs", m[1])) {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
			if m[2] != "" && !slices.Contains(anchors(string(target)), m[2][1:]) {
				t.Errorf("%s links to %s%s: the page has no such heading", page, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile("`(?:deploy|examples|api|internal)/[a-z_./-]+`").FindAllString(string(text), -1) {
			if _, err := os.Stat("../../" + strings.Trim(m, "`")); err != nil {
				t.Errorf("%s names %s: %v", page, m, err)
			}
		}
	}
}
