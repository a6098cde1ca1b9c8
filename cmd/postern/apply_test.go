package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

const shopSecret = "whsec_vHwSXpr0Ns9WtMFjHJFlMA8kFvCA0yBqmK3SGhevpAE="

// written writes files of one directory: names and texts by turns.
func written(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestADeploymentIsAFile(t *testing.T) {
	t.Parallel()
	at := append(installation(t), "SHOP_SECRET="+shopSecret)
	shop := []string{"apply", "-f", "../../examples/apply", "--label", "shop"}
	postern(t, at, append(shop, "--dry-run")...).want(t, 6, "created", "11 things would change; nothing was changed")
	postern(t, at, "ls", "pools", "--context", "shop").want(t, 1)
	postern(t, at, append(shop, "--reason", "the first")...).want(t, 0, "created", "com.example.price@1")
	again := postern(t, at, append(shop, "--dry-run")...)
	again.want(t, 0, "unchanged")
	postern(t, at, append(shop, "-o", "json")...).want(t, 0, `"changed":0`)
	if strings.Count(again.stdout, "unchanged") != 11 {
		t.Error(again.stdout)
	}

	// the ConfigMap of the manifests
	manifests, err := os.ReadFile("../../deploy/kubernetes/postern.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(manifests), "\n  shop.yaml: |\n")
	config, _, _ = strings.Cut(config, "\n---\n")
	config = strings.ReplaceAll("\n"+config+"\n", "\n    ", "\n")
	postern(t, at, "apply", "-f", written(t, "shop.yaml", config), "--dry-run").want(t, 6, "dispatcher", "payer-1")

	// JSON, a list, a reference to a file beside it, and what differs
	dir := written(t,
		"a.json", `[{"kind": "pool", "name": "p"}, {"kind": "sender", "name": "s", "settings": {"pool": "p"}}]`,
		"b.yml", "kind: dispatcher\nname: T\nsettings:\n  worker_url: 'noop:'\n  secret: {from_file: key}\n",
		"key", shopSecret+"\n",
		"notes.txt", "no document")
	postern(t, at, "apply", "-f", dir, "--label", "l").want(t, 0, "pool", "sender", "dispatcher")
	less := written(t, "a.yaml", "kind: pool\nname: p\nsettings: {block_for: 2h}\n")
	prune := []string{"apply", "-f", less, "--label", "l", "--prune"}
	postern(t, at, append(prune, "--dry-run")...).want(t, 6, "removed", "block_for", "24h", "2h")
	postern(t, at, "apply", "-f", less, "--label", "l", "--prune").want(t, 0, "removed")
	postern(t, at, "apply", "-f", less, "--label", "l", "--prune").want(t, 0, "unchanged")

	// each refusal is named with its place
	bad := written(t, "bad.yaml", "kind: pool\nname: fresh\n---\n"+
		"kind: pool\nname: p\nsettings:\n  block_for: soon\n  colour: red\n---\n"+
		"kind: queue\nname: q\nsettings: {pool: none}\n")
	r := postern(t, at, "apply", "-f", filepath.Join(bad, "bad.yaml"))
	r.want(t, 1, "nothing was changed", "bad.yaml:8:3: pool p of context default: colour: ",
		"bad.yaml:12:12: queue q of context default: pool \"none\" does not exist")
	postern(t, at, "show", "pools/fresh").want(t, 1)
	one := func(text string) result { return postern(t, at, "apply", "-f", written(t, "x.yaml", text)) }
	one("kind: pool\nname: p\nname: q\nsettings: [1\n").want(t, 1, "x.yaml:", "this is no YAML")
	one("kind: pool\nname: p\nname: q\nsetting: 1\n").want(t, 1,
		`x.yaml:3:1: "name" stands twice`, `x.yaml:4:1: a document has no "setting"`)
	r = one("kind: dispatcher\nname: T\nsettings:\n  secret: " + shopSecret + "\n")
	r.want(t, 1, "x.yaml:4:11: a secret stands in no file")
	if strings.Contains(r.stdout+r.stderr, shopSecret) {
		t.Error("a secret is shown")
	}
	one("# all of it is gone\n").want(t, 1, "there is no document in it", "leave one that may stay")
	postern(t, at, "apply", "-f", "nowhere.yaml").want(t, 2, "nowhere.yaml")
	postern(t, at, "apply").want(t, 2, "-f FILE")
	postern(t, at, "apply", "-f", less, "--prune").want(t, 2, "--label")
}

// configured is the environment of a process that serves what a configuration file says.
func configured(db *pgtest.DB, file string) []string {
	return []string{"DATABASE_URL=" + db.URL, "POSTERN_CONFIG_FILE=" + file, "POSTERN_CONFIG_LABEL=start",
		"SHOP_SECRET=" + shopSecret, "POSTERN_LISTEN=127.0.0.1:0",
		"POSTERN_METRICS_LISTEN=off", "POSTERN_AUTH=none", "POSTERN_LOG_FORMAT=text",
		"POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8,::1/128"}
}

// told waits until a process has said something on standard error.
func told(t *testing.T, p *process, what string) {
	t.Helper()
	end := time.After(time.Minute)
	for !strings.Contains(p.stderr(), what) {
		select {
		case <-p.ended:
		case <-end:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		if !strings.Contains(p.stderr(), what) {
			t.Fatalf("%q is missing in %s", what, p.stderr())
		}
	}
}

func count(t *testing.T, db *pgtest.DB, sql string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServeAppliesItsConfigurationFileBeforeItAnswers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	env := configured(db, "../../examples/apply")
	all := []*process{start(t, env, "serve"), start(t, env, "serve"), start(t, env, "serve")}
	for _, p := range all {
		told(t, p, "listening")
	}
	changed := 0
	for _, p := range all {
		told(t, p, "the configuration file is applied")
		if strings.Contains(p.stderr(), "changed=11") {
			changed++
		} else {
			told(t, p, "changed=0")
		}
		if strings.Contains(p.stderr(), shopSecret) {
			t.Error("the log has a secret")
		}
	}
	n := count(t, db, `SELECT count(*) FROM postern.audit WHERE actor = 'config-file' AND via = 'file'`)
	if changed != 1 || n != 11 {
		t.Errorf("%d of 3 processes changed something, in %d audit rows", changed, n)
	}
	bad := written(t, "bad.yaml", "kind: pool\nname: fresh\n---\nkind: pool\nname: p\nsettings:\n  block_for: soon\n")
	r := postern(t, configured(db, bad), "serve")
	r.want(t, 1, "bad.yaml:7:3: pool p of context default: block_for")
	fresh := count(t, db, `SELECT count(*) FROM postern.pool WHERE name = 'fresh'`)
	if strings.Contains(r.stderr, "listening") || fresh != 0 {
		t.Error(r.stderr)
	}
	prune := append(configured(db, bad), "POSTERN_CONFIG_PRUNE=true", "POSTERN_CONFIG_LABEL=")
	postern(t, prune, "serve").want(t, 2, "config-label")
}

// A process that starts with fewer documents under its label removes what these name no more, of every kind, or does
// not start where something of it is in use.
func TestServePrunesWhatItsFileNamesNoMore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	serving := func(env []string, changed string) []string {
		t.Helper()
		p := start(t, env, "serve")
		told(t, p, changed)
		told(t, p, "listening")
		return []string{"POSTERN_URL=" + regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(p.stderr())}
	}
	all := []string{"/pools/payers", "/senders/payer-1", "/dispatchers/PAY", "/queues/refunds",
		"/tools/com.example.price@1", "/sources/orders", "/channels/till-to-books", "/processors/neutron",
		"/authorizations/payouts", "/subscriptions/books"}
	are := func(at []string, code int) {
		t.Helper()
		for _, path := range all {
			postern(t, at, "api", "GET", path, "--context", "shop").want(t, code)
		}
	}
	at := serving(configured(db, "../../examples/apply"), "changed=11")
	postern(t, at, "post", "PAY", "--context", "shop", "--queue", "q", "--uid", "one", "--data", "{}").want(t, 0)
	less := written(t, "less.yaml", "kind: context\nname: shop\n")
	prune := append(configured(db, less), "POSTERN_CONFIG_PRUNE=true")
	postern(t, prune, "serve").want(t, 1, "dispatcher PAY of context shop", "no document names any more")
	are(at, 0)
	postern(t, at, "cancel", "one", "--context", "shop").want(t, 0)
	are(serving(prune, "changed=11"), 1)
	const removals = `SELECT count(*) FROM postern.audit WHERE action = 'delete' AND via = 'file'`
	if n := count(t, db, removals); n != 10 {
		t.Errorf("%d removals in the audit, want 10", n)
	}
	serving(prune, "changed=0")
}

// A process that is killed in the middle of an apply leaves nothing of it: it has written all but what waits for a
// lock.
func TestAProcessThatIsKilledWhileItAppliesLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const file = "kind: pool\nname: first\n---\n" +
		"kind: sender\nname: acct\nsettings: {pool: first}\n---\n" +
		"kind: dispatcher\nname: HELD\nsettings: {worker_url: 'noop:'}\n"
	dir := written(t, "a.yaml", file, "b.yaml", "kind: pool\nname: last\n")
	held := written(t, "a.yaml", "kind: dispatcher\nname: HELD\nsettings: {worker_url: 'noop:', slots: 3}\n")
	before := start(t, configured(db, held), "serve")
	told(t, before, "listening")
	before.signal(syscall.SIGTERM)
	<-before.ended
	holder, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.Background())
	tx, err := holder.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM postern.dispatcher WHERE type = 'HELD' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	p := start(t, configured(db, dir), "serve")
	const waits = `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database()
			AND wait_event_type = 'Lock'
			AND query LIKE '%postern.dispatcher%FOR UPDATE%'`
	for end := time.Now().Add(time.Minute); count(t, db, waits) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not wait for the lock: %s", p.stderr())
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	const made = `SELECT (SELECT count(*) FROM postern.pool) + (SELECT count(*) FROM postern.sender)
		+ (SELECT count(*) FROM postern.audit WHERE object <> '/dispatchers/HELD')`
	end := time.Now().Add(time.Minute)
	for count(t, db, waits) != 0 && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	if n := count(t, db, made); n != 0 {
		t.Errorf("%d rows are left of an apply that was killed", n)
	}
	again := start(t, configured(db, dir), "serve")
	told(t, again, "changed=4")
}
