package telemetry_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/telemetry"
)

var update = flag.Bool("update", false, "write the golden file")

// scrape returns what GET /metrics says.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("GET /metrics answers %d: %v", w.Code, err)
	}
	return string(b)
}

// exercise makes every number appear.
func exercise(m *telemetry.Metrics) {
	m.Entered("PAY", outbox.DONE)
	m.Left(outbox.WAITING, time.Second)
	m.QueueLeft(outbox.DELAY, time.Second)
	m.BatchLeft(processor.Executing, time.Second)
	m.Retried("PAY", outbox.ClassRetry)
	m.Called("PAY", "", time.Millisecond)
	m.Claimed(time.Millisecond)
	m.Settled(time.Millisecond)
	m.Refused()
	m.RunnerLapsed(3)
	m.MessageDeadline("timeout_ack")
	m.IntentEnded("success")
	m.CoordMessage(coord.Heartbeat, "taken")
	m.Delivered("delivered")
	m.Served("GET /queues/{name}", 200, time.Millisecond)
}

func sources() telemetry.Sources {
	return telemetry.Sources{
		Sample: func(context.Context) (telemetry.Sample, error) {
			return telemetry.Sample{Waiting: 7, OldestHeads: map[string]float64{"BLOCKED": 1.5},
				Held:       map[string]int64{"p": 1},
				HeldByType: map[string]int64{"PAY": 2}, Queues: map[string]int64{"FREE": 3},
				Deliveries: map[string]int64{"pending": 2},
				Senders:    []telemetry.SenderCount{{Pool: "p", State: "FREE", Count: 4}}, RiverLag: 0.25, OldestSnapshot: 9,
				Jobs: telemetry.Jobs{Offers: map[string]int64{"python": 5}, Oldest: map[string]float64{"python": 6.5},
					Stranded: map[string]float64{"python": 0}, Runners: map[string]int64{"live": 1}},
				Messages: telemetry.Messages{Open: map[string]int64{"result": 2},
					Oldest: map[string]float64{"result": 7.5}},
				Peers: telemetry.Peers{States: map[string]int64{"refuses": 1}, Refused: 8.5},
				Domains: telemetry.Domains{Intents: map[string]int64{"Submitted": 3},
					Oldest:       map[string]float64{"Submitted": 9.5},
					Coordinators: map[string]int64{"Active": 1}}}, nil
		},
		Waits:    func() telemetry.Waits { return telemetry.Waits{Count: 2, Total: time.Second} },
		LeaseAge: func() (time.Duration, bool) { return time.Second / 2, true },
	}
}

const metricsHead = `# Metrics

*Reference.* Every number that a process serves for Prometheus at /metrics (POSTERN_METRICS_LISTEN), its
labels, and the alerts of deploy/prometheus/alerts.yml that stand on it. It is rendered by make contract.

| name | kind | labels | what it says | alerts |
|---|---|---|---|---|
`

// thePageIs compares docs/metrics.md, or writes it.
func thePageIs(t *testing.T, got string) {
	t.Helper()
	const path = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("%s is not what is served (%v): make contract, and read the diff", path, err)
	}
}

// alertsOf finds the alerts that stand on a metric.
func alertsOf(t *testing.T) func(metric string) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.Split(string(text), "- alert: ")[1:]
	return func(metric string) (names []string) {
		for _, rule := range rules {
			name, rest, _ := strings.Cut(rule, "\n")
			expr, _, _ := strings.Cut(rest, "annotations:")
			if regexp.MustCompile(`\b` + metric + `(_bucket|_sum|_count)?\b`).MatchString(expr) {
				names = append(names, "`"+strings.TrimSpace(name)+"`")
			}
		}
		return names
	}
}

// Dashboards and alerts of others stand on these names: a removal is a change of the surface.
func TestTheNamesAreGolden(t *testing.T) {
	m := telemetry.New()
	m.Watch(sources())
	exercise(m)
	var names, rows []string
	alerts := alertsOf(t)
	text := scrape(t, m)
	label := regexp.MustCompile(`([a-z_]+)="`)
	for _, found := range regexp.MustCompile(`(?m)^# HELP (postern_\S+) (.*)\n# TYPE \S+ (\S+)\n\S+?(\{.*\})? [^ ]+$`).FindAllStringSubmatch(text, -1) {
		var labels []string
		for _, l := range label.FindAllStringSubmatch(found[4], -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		names = append(names, fmt.Sprintf("%s{%s} %s\n    %s\n", found[1], strings.Join(labels, ","), found[3], found[2]))
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", found[1], found[3],
			strings.Join(labels, ", "), found[2], strings.Join(alerts(found[1]), ", ")))
	}
	got := strings.Join(names, "")
	thePageIs(t, metricsHead+strings.Join(rows, ""))
	const path = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("%s is not what is served (%v): run this test with -update and read the diff\n%s", path, err, got)
	}
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its list of metrics is not compared: ", err)
	}
	_, row, _ := strings.Cut(string(page), "prefix `postern_`:")
	row, _, _ = strings.Cut(row, "Gauges over queues")
	list := regexp.MustCompile("`([a-z_]+)(\\{[a-z,]*\\})?`").FindAllStringSubmatch(row, -1)
	if len(list) < 15 {
		t.Fatalf("the design names only %d metrics", len(list))
	}
	for _, w := range list {
		if w[1] == "worker_seconds" {
			continue // a histogram by type and class is 95 series a type: see TestATypeHasFewSeries
		}
		labels := strings.Split(strings.Trim(w[2], "{}"), ",")
		slices.Sort(labels)
		if !strings.Contains(got, "postern_"+w[1]+"{"+strings.Join(labels, ",")+"}") {
			t.Errorf("the design names postern_%s%s, which is not served", w[1], w[2])
		}
	}
}

func TestWhatIsSampledIsServed(t *testing.T) {
	m := telemetry.New()
	m.Watch(sources())
	exercise(m)
	text := scrape(t, m)
	for _, line := range []string{
		`postern_held_transactions{type="PAY"} 2`,
		`postern_job_offers{script_type="python"} 5`, `postern_oldest_offer_seconds{script_type="python"} 6.5`,
		`postern_stranded_offer_seconds{script_type="python"} 0`, `postern_runners{state="live"} 1`,
		`postern_runner_lapses_total 3`,
		`postern_messages_open{waits_for="result"} 2`, `postern_oldest_message_seconds{waits_for="result"} 7.5`,
		`postern_peers{state="refuses"} 1`,
		`postern_intents_open{state="Submitted"} 3`, `postern_oldest_intent_seconds{state="Submitted"} 9.5`,
		`postern_coordinators{state="Active"} 1`, `postern_intents_total{outcome="success"} 1`,
		`postern_coord_messages_total{kind="Heartbeat",outcome="taken"} 1`,
		`postern_peer_refused_seconds 8.5`,
		`postern_message_deadlines_total{deadline="timeout_ack"} 1`,
		`postern_waiting 7`, `postern_oldest_head_seconds 1.5`, `postern_queues{state="FREE"} 3`, `postern_senders{pool="p",state="FREE"} 4`,
		`postern_deliveries{state="pending"} 2`, `postern_deliveries{state="delivered"} 1`, `postern_river_lag_seconds 0.25`,
		`postern_oldest_snapshot_seconds 9`, `postern_db_wait_seconds_sum 1`, `postern_db_wait_seconds_count 2`, `postern_lease_age_seconds 0.5`,
		`postern_transactions_total{state="DONE",type="PAY"} 1`, `postern_transactions_total{state="FAILED",type="PAY"} 0`,
		`postern_http_seconds_count{route="GET /queues/{name}",status="200"} 1`,
		`postern_worker_calls_total{class="ok",type="PAY"} 1`,
		`postern_worker_seconds_count{class="ok"} 1`, `postern_worker_call_seconds_count{type="PAY"} 1`,
		`postern_retries_total{class="retry",type="PAY"} 1`, `postern_stale_writes_refused_total 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}

func TestASampleIsSharedAndMayFail(t *testing.T) {
	asked, fails := 0, true
	m := telemetry.New()
	s := sources()
	take := s.Sample
	s.Sample = func(ctx context.Context) (telemetry.Sample, error) {
		if asked++; fails {
			return telemetry.Sample{}, errors.New("no database")
		}
		return take(ctx)
	}
	m.Watch(s)
	for range 3 {
		text := scrape(t, m)
		if strings.Contains(text, "postern_waiting") || !strings.Contains(text, "postern_lease_age_seconds 0.5") || !strings.Contains(text, "go_goroutines") {
			t.Errorf("without a database:\n%s", text)
		}
	}
	if asked != 1 {
		t.Errorf("three scrapes in a moment asked the database %d times", asked)
	}
}

func TestAFloodOfTypesAndPoolsIsCountedTogether(t *testing.T) {
	m := telemetry.New()
	m.Watch(telemetry.Sources{Sample: func(context.Context) (telemetry.Sample, error) {
		v := telemetry.Sample{Held: map[string]int64{}}
		for i := range 1000 {
			v.Held[fmt.Sprint("p", i)] = 1
			v.Senders = append(v.Senders, telemetry.SenderCount{Pool: fmt.Sprint("p", i), State: "FREE", Count: 1})
		}
		return v, nil
	}})
	for i := range 1000 {
		typ := fmt.Sprint("T", i)
		m.Entered(typ, outbox.DONE)
		m.Retried(typ, outbox.ClassRetry)
		m.Called(typ, "no class of ours", time.Second)
		m.Delivered(typ)
	}
	text := scrape(t, m)
	for _, line := range []string{`postern_transactions_total{state="DONE",type="(other)"} 800`, `postern_transactions_total{state="DONE",type="T0"} 1`,
		`postern_senders{pool="(other)",state="FREE"} 800`} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	for name, most := range map[string]int{
		"transactions_total": 201 * len(outbox.States), "retries_total": 201 * 2, "worker_seconds_count": 5,
		"senders": 201, "senders_held": 201, "deliveries": 3, "state_seconds_count": statesMeasured()} {
		if n := strings.Count(text, "\npostern_"+name+"{"); n > most || n == 0 {
			t.Errorf("%d series of %s, want at most %d", n, name, most)
		}
	}
}

// measured returns the machine tables whose states have a time.
func measured() []machine.Table {
	return slices.Concat(sequencer.Tables(), processor.Tables(),
		[]machine.Table{leader.Event, coord.OriginatorTransaction, coord.CoordinatorTransaction})
}

// statesMeasured returns the number of their states.
func statesMeasured() (n int) {
	for _, table := range measured() {
		n += len(table.States())
	}
	return n
}

func TestEveryStateOfTheMachinesIsMeasuredOrEnds(t *testing.T) {
	text := scrape(t, telemetry.New())
	for _, table := range measured() {
		for _, s := range table.States() {
			ends := slices.Contains(table.Terminal, s) || table.Name == "queue" && s == string(outbox.FREE)
			if strings.Contains(text, fmt.Sprintf(`postern_state_seconds_count{machine=%q,state=%q}`, table.Name, s)) == ends {
				t.Errorf("%s.%s: measured is %v", table.Name, s, !ends)
			}
		}
	}
}

func TestWithoutMetricsNothingHappens(t *testing.T) {
	exercise(nil)
	(*telemetry.Metrics)(nil).Watch(sources())
}

// One settle of the usual kind: a transaction goes out, is done, and the next one follows.
func BenchmarkSettle(b *testing.B) {
	m := telemetry.New()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			m.Entered("PAY", outbox.DISPATCHING)
			m.Left(outbox.WAITING, 30*time.Millisecond)
			m.Called("PAY", "", 5*time.Millisecond)
			m.Settled(2 * time.Millisecond)
			m.Left(outbox.DISPATCHING, 7*time.Millisecond)
			m.QueueLeft(outbox.BLOCKED, 7*time.Millisecond)
			m.Entered("PAY", outbox.DONE)
		}
	})
}

func TestCountingASettleCostsNoMemory(t *testing.T) {
	m := telemetry.New()
	m.Entered("PAY", outbox.DONE)
	if n := testing.AllocsPerRun(1000, func() {
		m.Entered("PAY", outbox.DONE)
		m.Left(outbox.WAITING, time.Millisecond)
		m.QueueLeft(outbox.BLOCKED, time.Millisecond)
		m.Called("PAY", "", time.Millisecond)
		m.Settled(time.Millisecond)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A type costs at most 20 series, whatever happens to its transactions, however many types there are.
func TestATypeHasFewSeries(t *testing.T) {
	m := telemetry.New()
	held := map[string]int64{}
	m.Watch(telemetry.Sources{Sample: func(context.Context) (telemetry.Sample, error) {
		return telemetry.Sample{HeldByType: held}, nil
	}})
	for i := range 500 {
		typ := fmt.Sprint("T", i)
		held[typ] = 1
		m.RejectedInARow(typ)
		for _, s := range outbox.States {
			m.Entered(typ, s)
		}
		for _, c := range []outbox.Class{
			"", outbox.ClassBlocked, outbox.ClassAmbiguous, outbox.ClassRejected, outbox.ClassRetry, "another",
		} {
			m.Retried(typ, c)
			m.Called(typ, c, time.Second)
		}
	}
	series := map[string]int{}
	of := regexp.MustCompile(`(?m)^postern_\S*\btype="([^"]+)"`)
	for _, found := range of.FindAllStringSubmatch(scrape(t, m), -1) {
		series[found[1]]++
	}
	if len(series) < 100 || len(series) > 402 { // counters and the gauge each choose 200
		t.Errorf("%d types have series", len(series))
	}
	for typ, n := range series {
		if n > 20 {
			t.Errorf("type %s has %d series", typ, n)
		}
	}
	if series["T0"] < 17 {
		t.Errorf("T0 has %d series", series["T0"])
	}
}
