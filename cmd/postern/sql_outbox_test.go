package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheBlocksOfTheSQLOutboxPageDoWhatItSays(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "psql", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, so the blocks of docs/sql-outbox.md are not run: apt-get install curl postgresql-client", tool)
		}
	}
	page, err := os.ReadFile("../../docs/sql-outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	_, database, api := developing(t)
	role := "shop_app_of_the_outbox" // the page about security has one of its name on the same server
	t.Cleanup(func() { onServer(t, database, "DROP ROLE IF EXISTS "+role) })
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 5 {
		t.Fatalf("the page has %d blocks of shell", len(blocks))
	}
	var said []string
	for _, b := range blocks {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(b[1], "shop_app", role))
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "DATABASE_URL="+database,
			"POSTERN_URL="+api)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, b[1], out)
		}
		said = append(said, string(out))
	}
	// what a block shows of a transaction: its last lines of JSON
	transactions := func(block int) (list []map[string]any) {
		from := strings.Index(said[block], `{"`)
		for dec := json.NewDecoder(strings.NewReader(said[block][max(from, 0):])); dec.More(); {
			var v map[string]any
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("%v\n%s", err, said[block])
			}
			list = append(list, v)
		}
		return list
	}
	// psql prints the uids between the answers of curl
	if !strings.Contains(said[0], " order-4711\n") || strings.Count(said[0], `"state":"DONE"`) != 1 || !strings.Contains(said[0], `"code":"not_found"`) {
		t.Errorf("one is committed and one is rolled back:\n%s", said[0])
	}
	if got := transactions(1); len(got) != 1 || got[0]["state"] != "DONE" || got[0]["uid"] != "order-4714" || got[0]["position"] != 3.0 {
		t.Errorf("the batch:\n%s", said[1])
	}
	for _, want := range []string{"ZP422", "ZP409", `"code": "unknown_type"`, `"code": "idempotency_conflict"`} {
		if !strings.Contains(said[2], want) {
			t.Errorf("the refusals lack %s:\n%s", want, said[2])
		}
	}
	if !strings.Contains(said[3], "paid: order-4716\n") {
		t.Errorf("consumed:\n%s", said[3])
	}
	if got := transactions(4); len(got) != 1 || got[0]["state"] != "DONE" || got[0]["actor"] != role {
		t.Errorf("as another role:\n%s", said[4])
	}
}
