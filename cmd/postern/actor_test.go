package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAnActorRegistersAndRotatesItsKey(t *testing.T) {
	t.Parallel()
	at, dir := installation(t), t.TempDir()
	key, next := filepath.Join(dir, "ann.key"), filepath.Join(dir, "ann-2.key")
	r := postern(t, at, "actor", "register", "--key-file", key, "--own-context", "anns", "-o", "json")
	r.want(t, 0, `"id"`)
	ann := field("id")(parsed(t, r.stdout))
	again := postern(t, at, "actor", "register", "--key-file", key, "-o", "json")
	again.want(t, 0, ann)

	signs := append(at, "POSTERN_ACTOR_KEY_FILE="+key)
	postern(t, signs, "api", "PUT", "/dispatchers/PAY", "--context", "anns", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	postern(t, signs, "post", "PAY", "--context", "anns", "--uid", "p-1", "--wait", "30s", "-o", "json").want(t, 0, ann)
	postern(t, signs, "ls", "queues", "--context", "default").want(t, 1, "no context")

	postern(t, signs, "actor", "key", "add", ann, "--new-key-file", next, "--reason", "a new laptop").want(t, 0)
	old := parsed(t, postern(t, signs, "show", "actors/"+ann, "-o", "json").stdout)
	list := old["keys"].([]any)
	if len(list) != 2 {
		t.Fatalf("%v", old)
	}
	id := list[0].(map[string]any)["id"].(string)
	signs[len(signs)-1] = "POSTERN_ACTOR_KEY_FILE=" + next
	postern(t, signs, "actor", "key", "retire", ann, id, "--compromised").want(t, 0, id+" retired")
	signs[len(signs)-1] = "POSTERN_ACTOR_KEY_FILE=" + key
	refused := postern(t, signs, "show", "actors/"+ann)
	if refused.want(t, 1); !strings.Contains(refused.stderr, "retired") {
		t.Errorf("%s", refused.stderr)
	}
	signs[len(signs)-1] = "POSTERN_ACTOR_KEY_FILE=" + filepath.Join(dir, "none.key")
	postern(t, signs, "ls", "queues").want(t, 2, "cannot be read")
}

func parsed(t *testing.T, text string) record {
	t.Helper()
	r, err := parse([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}
