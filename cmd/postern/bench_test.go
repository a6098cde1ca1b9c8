package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
	for flag, want := range map[string]string{"--runs=0": "--runs 0", "--length=0s": "--length 0s", "--shapes=7": "KEYSxDEPTH", "--finished=0": "--finished 0", "--rate=-1": "--rate -1"} {
		postern(t, database(db.URL), "bench", flag).want(t, 2, want)
	}
	postern(t, nil, "bench", "--list").want(t, 0, "fifo-1000x10")
}

func TestAWrongRunHasNoRateAndABadEnd(t *testing.T) {
	db := pgtest.New(t)
	if _, err := db.Pool.Exec(t.Context(), `CREATE FUNCTION back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			NEW.done_at := NEW.done_at - interval '1 h'; RETURN NEW; END $$;
		CREATE TRIGGER back BEFORE INSERT ON postern.outcome FOR EACH ROW WHEN (NEW.seq = 3) EXECUTE FUNCTION back()`); err != nil {
		t.Fatal(err)
	}
	got := postern(t, database(db.URL), "bench", "fifo-4x5", "--runs", "1", "-o", "json")
	got.want(t, 1, "4 are out of order", "no rate")
	if r := results(t, got)[0]; r.Violations != 4 || strings.Contains(got.stdout, `"rate`) {
		t.Errorf("%s", got.stdout)
	}
	var left int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM postern.outcome`).Scan(&left); err != nil || left != 20 {
		t.Errorf("%d outcomes of a wrong run can be looked at: %v", left, err)
	}
}

func TestBenchCheckFlagsWhatBecameSlower(t *testing.T) {
	db := pgtest.New(t)
	file := filepath.Join(t.TempDir(), "baseline.json")
	check := func(more ...string) result {
		return postern(t, database(db.URL), append([]string{"bench", "check", "--baseline", file, "--runs", "1", "--queues", "20", "--depth", "2", "--length", "100ms", "--connections", "4"}, more...)...)
	}
	check().want(t, 2, "--update")
	check("--update").want(t, 0)
	text, err := os.ReadFile(file)
	var b bench.Baseline
	if err != nil || json.Unmarshal(text, &b) != nil || len(b.Ratios) != 5 {
		t.Fatalf("the baseline is %s, %v", text, err)
	}
	if err := os.WriteFile(file, []byte(`{"calibration": "`+b.Calibration+`", "ratios": {"e2e": {"median": 1e6, "low": 1e6, "high": 1e6}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	check("-o", "table").want(t, 1, "SLOWER", "slower than the interval of the baseline")
	check("--beside", binary).want(t, 2, "postern bench check takes one of --baseline and --beside, not both")
}

func TestBenchCheckComparesWithAnotherBuild(t *testing.T) {
	beside := func(program string) result {
		return postern(t, database(pgtest.New(t).URL), "bench", "check", "--beside", program, "--runs", "1",
			"--queues", "20", "--depth", "2", "--length", "100ms", "--connections", "4", "-o", "json")
	}
	got := beside(binary)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code > 1 || len(lines) != 5 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	for _, line := range lines {
		var c bench.Comparison
		if err := json.Unmarshal([]byte(line), &c); err != nil || c.Baseline == nil || c.Baseline.Median <= 0 ||
			c.Ratio.Pairs != 1 || c.Violations > 0 {
			t.Errorf("%s, %v", line, err)
		}
	}
	beside("/bin/false").want(t, 1, "/bin/false bench check: exit status 1")
	beside("/none").want(t, 1, "/none")
}
