package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What calibrates a check.
const (
	byPgbench = "pgbench"
	byClients = "commit" // the scenario of that name, where there is no pgbench
)

// pgbench looks for the program: beside the binaries of our server, on the PATH, where Debian has it.
func (b *Bench) pgbench() string {
	if b.Server.BinDir != "" {
		if path, err := exec.LookPath(filepath.Join(b.Server.BinDir, "pgbench")); err == nil {
			return path
		}
	}
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(found) == 0 {
		return ""
	}
	return slices.Max(found)
}

// calibration is one narrow row, committed durably.
const calibration = `\set n random(1, 9000000000000000000)
INSERT INTO postern_bench.durable (client, n, body) VALUES (:client_id, :n, 'B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy');
`

var (
	pgbenchDone = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	pgbenchRate = regexp.MustCompile(`tps = ([0-9.]+) \(without`)
)

// forLibpq is the URL of a database without the parameters that our driver alone knows: programs of PostgreSQL refuse
// them.
func forLibpq(database string) string {
	where, query, _ := strings.Cut(database, "?")
	var kept []string
	for _, said := range strings.Split(query, "&") {
		switch name, _, _ := strings.Cut(said, "="); {
		case strings.HasPrefix(name, "pool_"), name == "", name == "default_query_exec_mode",
			name == "statement_cache_capacity", name == "description_cache_capacity":
		default:
			kept = append(kept, said)
		}
	}
	if len(kept) > 0 {
		where += "?" + strings.Join(kept, "&")
	}
	return where
}

// calibrate measures durable commits of so many clients, with pgbench if it is there. A length is rounded to whole
// seconds then; for a length below half a second, each client makes one commit for every 10 ms of it.
func (b *Bench) calibrate(ctx context.Context, program string, clients int, length time.Duration) (*trial, error) {
	if program == "" {
		return b.commit(ctx, clients, length)
	}
	if err := b.makePlain(ctx); err != nil {
		return nil, err
	}
	script, err := os.CreateTemp("", "postern-bench-*.sql")
	if err != nil {
		return nil, err
	}
	defer os.Remove(script.Name())
	if _, err := script.WriteString(calibration); err != nil {
		return nil, err
	}
	if err := script.Close(); err != nil {
		return nil, err
	}
	number := func(flag string, n int) string { return flag + strconv.Itoa(n) }
	var done, rate [][]byte
	// to connect is a part of its time: on a busy machine all of it may be gone before the first commit
	for seconds := max(1, int(length.Seconds()+0.5)); done == nil || string(done[1]) == "0"; seconds *= 2 {
		var said bytes.Buffer
		limit := number("--time=", seconds)
		if length < time.Second/2 {
			limit = number("--transactions=", max(1, int(length/(10*time.Millisecond))))
		}
		cmd := exec.CommandContext(ctx, program, "--no-vacuum", "--protocol=prepared",
			"--file="+script.Name(), number("--client=", clients),
			number("--jobs=", min(clients, runtime.NumCPU())), limit, forLibpq(b.url))
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %.500s", program, err, said.Bytes())
		}
		done, rate = pgbenchDone.FindSubmatch(out), pgbenchRate.FindSubmatch(out)
		if done == nil || seconds > 60 && string(done[1]) == "0" {
			return nil, fmt.Errorf("%s said nothing of its rate: %.500s", program, out)
		}
	}
	if rate == nil {
		return nil, fmt.Errorf("%s made %s commits and said nothing of its rate", program, done[1])
	}
	n, _ := strconv.Atoi(string(done[1]))
	tps, err := strconv.ParseFloat(string(rate[1]), 64)
	if err != nil || tps <= 0 {
		return nil, fmt.Errorf("%s made %s commits a second: %w", program, rate[1], err)
	}
	return &trial{n: n, took: time.Duration(float64(n) / tps * float64(time.Second))}, nil
}
