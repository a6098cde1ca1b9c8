package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/bench"
	"github.com/postern-dev/postern/internal/pgtest"
)

// results reads the lines of a benchmark.
func results(t *testing.T, got result) (all []bench.Result) {
	t.Helper()
	for line := range strings.Lines(got.stdout) {
		var r bench.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

func TestBenchPrintsOneCheckedLinePerScenario(t *testing.T) {
	db := pgtest.Empty(t)
	got := postern(t, database(db.URL), "bench", "fifo-20x5", "e2e", "--queues", "20", "--depth", "5", "--connections", "8", "--runs", "2", "-o", "json")
	got.want(t, 0)
	all := results(t, got)
	if len(all) != 2 || all[0].Scenario != "fifo-20x5" || all[1].Scenario != "e2e" {
		t.Fatalf("lines: %s", got.stdout)
	}
	for _, r := range all {
		if r.System != "postern" || r.Transactions != 100 || r.Runs != 2 || r.Rate <= 0 || r.RateMin > r.Rate || r.Rate > r.RateMax || r.Violations != 0 ||
			r.Cost == nil || r.Cost.WAL <= 0 {
			t.Errorf("%+v", r)
		}
	}
	var left int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM postern.task`).Scan(&left); err != nil || left != 0 {
		t.Errorf("a database that was empty keeps %d transactions: %v", left, err)
	}
	postern(t, database(db.URL), "bench", "e3e").want(t, 2, "e3e", "fifo-KEYSxDEPTH")
	postern(t, nil, "bench", "--list").want(t, 0, "fifo-1000x10")
}
