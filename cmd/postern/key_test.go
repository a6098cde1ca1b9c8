package main

import (
	"encoding/json"

	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
)

// serving starts a process with an API and returns where clients find it.
func serving(t *testing.T, env []string, args ...string) (p *process, at string) {
	t.Helper()
	address := freeAddress(t)
	p = start(t, append(env, "POSTERN_LISTEN="+address, "POSTERN_METRICS_LISTEN=off"), args...)
	await(t, p, "http://"+address)
	return p, "POSTERN_URL=http://" + address
}

// A new user in production goes from no key at all to a revoked one.
func TestTheFirstKeyMakesTheOthers(t *testing.T) {
	t.Parallel()
	dir, db := t.TempDir(), database(pgtest.New(t).URL)
	file := func(name string) string { return filepath.Join(dir, name) }

	locked, at := serving(t, db, "serve")
	postern(t, []string{at}, "ls").want(t, 1, "this needs a credential")
	postern(t, []string{at, "POSTERN_API_KEY=" + strings.TrimSpace(postern(t, nil, "key", "draw").stdout)},
		"ls").want(t, 1, "this API key does not hold")
	if said := locked.stderr(); !strings.Contains(said, "no caller can get in") ||
		!strings.Contains(said, "postern key draw") {
		t.Errorf("it does not say what is missing: %s", said)
	}

	postern(t, nil, "key", "draw", "--out", file("root.key")).want(t, 0)
	if info, err := os.Stat(file("root.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	postern(t, nil, "key", "draw", "--out", file("root.key")).want(t, 2, "exists already")
	_, at = serving(t, append(db, "POSTERN_BOOTSTRAP_KEY_FILE="+file("root.key")), "serve", "--work")
	root := []string{at, "POSTERN_API_KEY_FILE=" + file("root.key"), "POSTERN_OUTPUT=table"}
	postern(t, root, "context", "create", "shop", "--require-key").want(t, 0, "shop")
	postern(t, root, "context", "create", "shop").
		want(t, 1, "context shop exists already", "next: `postern show contexts/shop`")
	postern(t, root, "context", "ls").want(t, 0, "shop", "system", "default")
	postern(t, root, "api", "PUT", "/dispatchers/PAY", "--context", "shop", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	made := postern(t, root, "key", "create", "till", "--context", "shop",
		"--role", "executor", "--out", file("till.key"))
	made.want(t, 0, "till", "executor")
	secret, err := os.ReadFile(file("till.key"))
	if err != nil || !strings.HasPrefix(string(secret), "postern_") ||
		strings.Contains(made.stdout, strings.TrimSpace(string(secret))) {
		t.Errorf("%v: the key is in %q, and shown in %s", err, secret, made.stdout)
	}
	shown := postern(t, []string{at, "POSTERN_API_KEY_FILE=" + file("root.key")}, "key", "create", "eye",
		"--context", "shop", "--role", "reader", "--only", "read", "--expires-in", "1h", "-o", "json")
	var eye struct{ ID, Secret string }
	if err := json.Unmarshal([]byte(shown.stdout), &eye); err != nil || eye.Secret == "" {
		t.Fatalf("%v %s", err, shown.stdout)
	}
	postern(t, root, "key", "create", "x", "--context", "shop", "--role", "king").want(t, 1, "role")
	postern(t, root, "key", "create", "x", "--context", "shop").want(t, 2, "role")

	till := []string{at, "POSTERN_API_KEY_FILE=" + file("till.key"), "POSTERN_OUTPUT=table"}
	postern(t, till, "post", "PAY", "-q", "ada", "--uid", "p-1", "--wait", "30s").want(t, 0, "DONE")
	postern(t, till, "post", "PAY", "-q", "ada").want(t, 1, "idempotency key")
	postern(t, till, "pause", "queues/ada").want(t, 1, "admin", "next: a key with the role that is named may do it")
	postern(t, till, "ls", "--context", "system").want(t, 1, `no context "system"`)
	reader := []string{at, "POSTERN_API_KEY=" + eye.Secret, "POSTERN_OUTPUT=table"}
	postern(t, reader, "show", "p-1").want(t, 0, "DONE")
	postern(t, reader, "post", "PAY", "-q", "ada", "--uid", "p-2").want(t, 1, "executor")
	postern(t, root, "key", "ls", "--context", "shop").want(t, 0, "till", "eye", eye.ID, "  all")
	rotated := postern(t, []string{at, "POSTERN_API_KEY_FILE=" + file("root.key")}, "key", "rotate", "eye",
		"--context", "shop", "--overlap", "1h", "-o", "json")
	rotated.want(t, 0, `"secret":"postern_`)
	postern(t, reader, "show", "p-1").want(t, 0)
	postern(t, root, "show", "api-keys/eye", "--context", "shop").want(t, 0, eye.ID)
	postern(t, root, "key", "revoke", "eye", "--context", "shop").want(t, 0, "api-keys/eye  revoked")
	postern(t, root, "key", "rotate", "eye", "--context", "shop").
		want(t, 1, `no API key has the id or name "eye"`, "next: `postern key ls`")
	postern(t, reader, "show", "p-1").want(t, 1, "this API key does not hold")

	postern(t, root, "pause", "contexts/shop", "--reason", "an audit").want(t, 0, "done")
	postern(t, till, "post", "PAY", "-q", "ada", "--uid", "p-3").want(t, 0, "WAITING")
	postern(t, till, "why", "p-3").want(t, 0, "context paused", "an audit")
	postern(t, root, "resume", "contexts/shop").want(t, 0)
	postern(t, till, "api", "GET", "/transactions/by-uid/p-3?wait=30s").want(t, 0, `"DONE"`)
	postern(t, root, "context", "delete", "shop").want(t, 1, "dispatchers")
	postern(t, root, "key").want(t, 2, "want draw, create")
}
