package pg_test

import (
	"os"
	"strings"
	"testing"
)

// unbuilt are the views and columns of the design that do not exist, with the reason.
var unbuilt = map[string]string{
	"postern.senders.account": "the sender's name is its account, and every other view has it as sender",
	"report.flows.age":        "created_at and ended_at say it",
	"report.flows.creator":    "it is caller there",
	"report.flows.failed":     "one failure ends a flow: failed_job names it",
	"report.jobs.caller_id":   "the caller is that of its flow",
	"report.jobs.lease_until": "a try lives by the heartbeat of its runner: report.runners.seen_age",
	"report.jobs.runner":      "why names it; report.runners says how many jobs each holds",
}

// Every column of the design's views is there, or unbuilt says why it is not.
func TestEveryColumnOfTheDesignIsThereOrExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its views are not compared: ", err)
	}
	w := newWorld(t)
	have := map[string]bool{}
	for _, c := range w.Lines(`SELECT c.relnamespace::regnamespace || '.' || c.relname || x.suffix FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
			CROSS JOIN LATERAL (VALUES (''), ('.' || a.attname)) x(suffix)
		WHERE c.relkind = 'v' AND c.relnamespace::regnamespace::text IN ('postern', 'report')`) {
		have[c] = true
	}
	holds := func(name string) {
		if !have[name] && unbuilt[name] == "" {
			t.Errorf("%s of the design is not there, and unbuilt does not say why", name)
		}
	}
	_, table, _ := strings.Cut(string(page), "| view (first column: context) | columns |")
	table, _, _ = strings.Cut(table, "\n\n")
	columns := 0
	for _, row := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(row, "|")
		views, lists := strings.Split(cells[1], ";"), strings.Split(cells[2], ";")
		if len(views) != len(lists) {
			t.Fatalf("%d views with %d lists of columns: %s", len(views), len(lists), row)
		}
		for i, v := range views {
			name, note, _ := strings.Cut(strings.TrimSpace(v)[1:], "`")
			if holds(name); !have[name] {
				continue
			}
			list := strings.Split(lists[i], ",")
			if !strings.Contains(note+cells[1][strings.LastIndex(cells[1], "`"):], "no context") {
				list = append(list, "context")
			}
			for _, c := range list {
				holds(name + "." + strings.TrimSpace(c))
				columns++
			}
		}
	}
	if columns < 150 {
		t.Errorf("only %d columns were found in the design", columns)
	}
}
