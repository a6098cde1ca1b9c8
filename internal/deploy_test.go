package internal_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`postern_[a-z_]+[a-z]`)

// served reads which metrics there are, with their labels, from the golden list of internal/telemetry.
func served(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("telemetry/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	shape := regexp.MustCompile(`(?m)^(postern_\w+)\{([a-z_,]*)\} (\w+)$`)
	for _, m := range shape.FindAllStringSubmatch(string(text), -1) {
		labels := append(strings.Split(m[2], ","), "instance", "pod", "job")
		switch m[3] {
		case "histogram":
			names[m[1]+"_bucket"] = append(labels, "le")
			fallthrough
		case "summary":
			names[m[1]+"_count"], names[m[1]+"_sum"] = labels, labels
		default:
			names[m[1]] = labels
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d metrics were found", len(names))
	}
	return names
}

// uses holds an expression against what is served: names, and the labels that select and group.
func uses(t *testing.T, where, expr string, names map[string][]string) {
	t.Helper()
	used := metricName.FindAllString(expr, -1)
	if len(used) == 0 {
		t.Errorf("%s: %s asks for no metric of ours", where, expr)
	}
	var labels []string
	for _, name := range used {
		if names[name] == nil {
			t.Errorf("%s asks for %s, which nobody serves", where, name)
		}
		labels = append(labels, names[name]...)
	}
	for _, m := range regexp.MustCompile(`by \(([a-z_, ]+)\)|[{,] ?([a-z_]+)=`).FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1]+m[2], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(labels, l) {
				t.Errorf("%s: %s has no label %s", where, expr, l)
			}
		}
	}
}

// alerts returns the expressions of the alert rules by name.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, m := range regexp.MustCompile(`- alert: (\w+)\n\s+expr: '(.*)'\n`).FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = strings.ReplaceAll(m[2], "''", "'")
	}
	if n := strings.Count(string(text), "alert:"); n != len(list) || n < 15 {
		t.Fatalf("%d of %d alerts were read", len(list), n)
	}
	return list
}

// panels returns the expressions of the dashboard by the title of their panel.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/grafana/postern.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil || d.UID == "" {
		t.Fatal(err)
	}
	list, taken, ids := map[string][]string{}, map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: its id is taken, or it reaches beyond the edge", p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Fatalf("panels %q and %q lie over each other", taken[at], p.Title)
				}
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			list[p.Title] = append(list[p.Title], target.Expr)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
	}
	return list
}

func TestAlertsAndDashboardAskForWhatIsServed(t *testing.T) {
	names := served(t)
	for name, expr := range alerts(t) {
		uses(t, "alert "+name, expr, names)
	}
	shown := map[string]bool{}
	for title, exprs := range panels(t) {
		for _, e := range exprs {
			uses(t, "panel "+title, e, names)
			for _, name := range metricName.FindAllString(e, -1) {
				shown[name] = true
			}
		}
	}
	for name := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !shown[base] && !shown[base+"_bucket"] && !shown[base+"_sum"] && !shown[base+"_count"] {
			t.Errorf("the dashboard does not show %s", base)
		}
	}
}

// A command that an alert tells people to type must exist.
func TestAlertsNameCommandsThatExist(t *testing.T) {
	text, err := os.ReadFile(root + "/deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`postern ([a-z-]+)").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(root + "/testdata/cli/postern-" + m[1] + ".txt"); err != nil {
			t.Errorf("an alert names postern %s, which is no command", m[1])
		}
	}
}

func TestAlertsFireAndStayQuiet(t *testing.T) {
	dir := root + "/deploy/prometheus"
	cases, err := os.ReadFile(dir + "/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name := range alerts(t) {
		for _, kind := range []string{"fires", "is quiet"} {
			if !strings.Contains(string(cases), "- name: "+name+" "+kind+"\n") {
				t.Errorf("no test shows that %s %s", name, kind)
			}
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian and Ubuntu: apt-get install prometheus): the rules are not run")
	}
	cmd := exec.Command(promtool, "test", "rules", "alerts_test.yml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	// the dashboard's expressions are parsed as rules, with its variables filled in
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for _, exprs := range panels(t) {
		for _, e := range exprs {
			e = strings.NewReplacer("$__rate_interval", "1m", "$type", ".*").Replace(e)
			rules.WriteString("      - {record: 'x', expr: '" + strings.ReplaceAll(e, "'", "''") + "', labels: {e: '" +
				strings.ReplaceAll(e, "'", "''") + "'}}\n")
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
