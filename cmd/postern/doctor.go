package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pg/session"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at database, API and workers, and say what is wrong and what to do",
		Long: trim(`
			Look at the database that DATABASE_URL names: the settings that matter, the migrations, its clock,
			sessions that hold everything up, dead nodes, addresses that a node may not call, queues that
			stand still. With --url or POSTERN_URL, or without a database, ask the API: whether it is ready,
			its clock, what stands still there. And call every worker, from this machine. Each thing that is
			wrong comes with its remedy.

			  DATABASE_URL=postgres://... postern doctor
			  postern doctor --url https://postern.example -o json | jq '.items[] | select(.state == "bad")'

			Exit codes: 0 nothing is wrong, 1 something is, 3 database or API cannot be reached.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			cfg, _, err := settings(cmd)
			if err != nil {
				return err
			}
			found, code, err := examine(cmd, cfg)
			if err != nil {
				return err
			}
			bad := 0
			for _, f := range found {
				if f.State == doctor.Bad {
					bad++
				}
			}
			if asked {
				err = printJSON(cmd, map[string]any{"ok": bad == 0, "items": found})
			} else {
				printFindings(cmd.OutOrStdout(), paperOf(cmd), found)
			}
			if err == nil && bad > 0 {
				err = &failure{code: code, err: fmt.Errorf("%d of %d checks found something wrong", bad, len(found))}
			}
			return err
		},
	}
	addSettings(cmd, nil, "database")
	return asClient(cmd)
}

// remedyTwoPrimaries is what to do where two hosts of DATABASE_URL take writes.
const remedyTwoPrimaries = "restart no process of Postern before one is left: it would refuse to start. Find out which server the cluster's manager " +
	"takes for the primary (after a promotion that of the higher timeline), stop the other one, and keep it from starting by itself; " +
	"it comes back as a standby, by pg_rewind or a new base backup. What was written on it alone is lost then: docs/restore.md"

// examine asks the database and the API, as far as they are named, and returns the exit code for bad findings.
func examine(cmd *cobra.Command, cfg app.Config) (found []doctor.Finding, code int, err error) {
	code = exitBad
	_, none := cfg.Database()
	at := setting(cmd, "url", "POSTERN_URL")
	workers := map[string]string{}
	if none == nil {
		list, of, err := app.Examine(cmd.Context(), cfg)
		switch {
		case fault.CodeOf(err) == "bad_setting":
			return nil, 0, err
		case fault.CodeOf(err) == "two_primaries":
			list = append(list, doctor.Finding{Check: "primary", State: doctor.Bad,
				Found: err.Error(), Remedy: remedyTwoPrimaries})
		case fault.CodeOf(err) == "database_unfit":
			list = append(list, doctor.Finding{
				Check:  "database",
				State:  doctor.Bad,
				Found:  err.Error(),
				Remedy: "every command refuses it until then",
			})
		case err != nil:
			code = exitUnreachable
			_, remedy := session.Refused(err)
			list = append(list, doctor.Finding{
				Check:  "database",
				State:  doctor.Bad,
				Found:  err.Error(),
				Remedy: remedy,
			})
		}
		found = append(found, list...)
		for _, w := range of {
			workers[w.URL] = w.Type
		}
	}
	if none != nil || at != "" {
		d, err := dial(cmd)
		if err != nil {
			return nil, 0, err
		}
		list, err := d.examine(workers, none != nil)
		if err != nil {
			c, next := further(cmd, err)
			code = max(code, c)
			list = append(list, doctor.Finding{Check: "API", State: doctor.Bad, Found: err.Error(), Remedy: next})
		}
		found = append(found, list...)
	}
	return once(append(found, reach(cmd.Context(), workers, found)...)), code, nil
}

// once leaves out what follows from an address that no node may call: that calls to it come to nothing, that queues
// wait for it, and that it answers here. The line of the address says what to do.
func once(found []doctor.Finding) []doctor.Finding {
	barred := ""
	for _, f := range found {
		if f.Check == "addresses" && f.State == doctor.Bad {
			barred += ", " + f.Found
		}
	}
	return slices.DeleteFunc(found, func(f doctor.Finding) bool {
		if barred == "" || f.Check == "addresses" || f.State == doctor.OK {
			return false
		}
		typ, worker := strings.CutPrefix(f.Check, "worker of ")
		answers := worker && f.State == doctor.Warn && strings.Contains(f.Found, inVain)
		return strings.Contains(f.Found, "--worker-allow-cidr") || answers && named(barred, "dispatchers/"+typ)
	})
}

// named says whether a sentence that begins with a list of objects names one of them.
func named(sentence, object string) bool {
	return strings.Contains(sentence, ", "+object+", ") || strings.Contains(sentence, ", "+object+" (")
}

// inVain is what is said of a worker that answers, though the calls to it come to nothing.
const inVain = " answers GET /health, though calls to it come to nothing"

// examine looks at an API. alone says that its database was not asked: then it looks at queues and gates, too.
func (d *door) examine(workers map[string]string, alone bool) ([]doctor.Finding, error) {
	asked := time.Now()
	res, err := d.Do(d.ctx, http.MethodGet, "/readyz", nil, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var ready struct {
		Ready  bool
		Checks []struct {
			Name, Detail string
			OK           bool
		}
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&ready); err != nil {
		return nil, fmt.Errorf("%s/readyz cannot be read: is it Postern that listens there?", d.URL)
	}
	api := doctor.Finding{Check: "API", State: doctor.OK, Found: d.URL + " is ready"}
	if !ready.Ready {
		api.State, api.Found, api.Remedy = doctor.Bad, d.URL+" is not ready", "its log says more"
		for _, c := range ready.Checks {
			if !c.OK {
				api.Found += "; " + c.Name + ": " + c.Detail
			}
		}
	}
	found := []doctor.Finding{api}
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil { // whole seconds
		found = append(found, doctor.Clocks("API clock", "the API", at.Add(time.Second),
			asked.Add(-time.Second), time.Now().Add(time.Second)))
	}
	if !alone {
		return found, nil
	}
	types, err := d.types(workers)
	if found = append(found, types...); err != nil {
		return found, err
	}
	away, err := d.away()
	if found = append(found, away...); err != nil {
		return found, err
	}
	barred, err := d.unreachable()
	if found = append(found, barred...); err != nil {
		return found, err
	}
	held, err := d.held()
	if found = append(found, held...); err != nil {
		return found, err
	}
	stuck, err := d.stuck()
	return append(found, stuck...), err
}

// types collects the workers of the types of a context, and names those whose gate is closed.
func (d *door) types(workers map[string]string) (found []doctor.Finding, err error) {
	err = d.each("/dispatchers", func(r record) {
		if url := r.text("worker_url"); strings.HasPrefix(url, "http") {
			workers[url] = r.text("type")
		}
		if r.at("gate") == nil {
			return
		}
		found = append(found, doctor.Finding{
			Check: "worker of " + r.text("type"),
			State: doctor.Bad,
			Found: fmt.Sprintf("calls to %s come to nothing (%s tries in a row, since %s, the last by node %s): %s",
				r.text("worker_url"), r.text("gate.failures"), r.text("gate.since"), r.text("gate.node"),
				r.text("gate.reason")),
			Remedy: "start it, or give another worker_url: postern api PATCH /dispatchers/" + r.text("type") +
				` -d '{"worker_url": "http://WORKER"}'`,
		})
	})
	return found, err
}

// away names the senders whose gate is closed.
func (d *door) away() (found []doctor.Finding, err error) {
	err = d.each("/senders", func(r record) {
		if r.text("block_reason") != "worker_unreachable" {
			return
		}
		found = append(found, doctor.Finding{
			Check: "worker of sender " + r.text("account"),
			State: doctor.Bad,
			Found: "calls by it come to nothing, and it is left alone until " + r.text("blocked_until"),
			Remedy: "mend that; probes go on by themselves, and postern unblock senders/" + r.text("account") +
				" tries at once",
		})
	})
	return found, err
}

// unreachable compares the addresses of a context with what the nodes may call, and says if all nodes are drained.
func (d *door) unreachable() ([]doctor.Finding, error) {
	var nodes []addresses.Allowance
	var drained []string
	live := 0
	if err := d.each("/nodes", func(r record) {
		if r.text("state") == "live" {
			live++
			if r.at("draining") == true {
				drained = append(drained, r.text("name"))
			}
		}
		ranges, told := r.at("worker_allow_cidr").([]any)
		if !told || r.text("state") != "live" {
			return
		}
		n := addresses.Allowance{Node: r.text("name")}
		for _, s := range ranges {
			n.CIDRs = append(n.CIDRs, fmt.Sprint(s))
		}
		nodes = append(nodes, n)
	}); err != nil {
		return nil, err
	}
	var all []addresses.Address
	for _, kind := range []struct{ path, name, url string }{
		{"dispatchers", "type", "worker_url"},
		{"senders", "account", "worker_url"},
		{"subscriptions", "name", "url"},
		{"tools", "fqn", "url"},
		{"sources", "name", "url"},
		{"peers", "name", "url"},
		{"domains", "name", "service_url"},
	} {
		if err := d.each("/"+kind.path, func(r record) {
			all = append(all, addresses.Address{
				Context: cmp.Or(d.Context, "default"),
				Object:  kind.path + "/" + r.text(kind.name),
				URL:     r.text(kind.url),
			})
		}); err != nil {
			return nil, err
		}
	}
	found := app.Unreachable(d.ctx, all, nodes)
	if len(drained) > 0 && len(drained) == live {
		found = append(found, doctor.Drained(drained))
	}
	return found, nil
}

// each reads every page of a list.
func (d *door) each(path string, do func(record)) error {
	for next := ""; ; {
		_, page, err := d.get(path + "?limit=500" + next)
		if err != nil {
			return err
		}
		for _, r := range page.records("items") {
			do(r)
		}
		if page.text("next") == "" {
			return nil
		}
		next = "&cursor=" + page.text("next")
	}
}

// held says which transactions wait for somebody to say what came of them, the oldest first.
func (d *door) held() ([]doctor.Finding, error) {
	const shown = 5
	_, page, err := d.get(fmt.Sprintf("/transactions?held=true&order=asc&limit=%d", shown))
	if err != nil {
		return nil, err
	}
	var found []doctor.Finding
	for _, r := range page.records("items") {
		id := r.text("id")
		found = append(found, doctor.Finding{
			Check:  "held transactions",
			State:  doctor.Bad,
			Found:  fmt.Sprintf("%s of type %s: its outcome is unknown", r.text("uid"), r.text("type")),
			Remedy: "find out, then postern was-done " + id + " or postern was-not-done " + id + ", with --reason",
		})
	}
	if page.text("next") != "" {
		found[len(found)-1].Remedy += "; postern ls held=true lists more"
	}
	if len(found) == 0 {
		f := doctor.Finding{Check: "held transactions", State: doctor.OK, Found: "none waits for somebody's word"}
		found = append(found, f)
	}
	return found, nil
}

// stuck asks why the queues do not move whose head has been there for ten minutes, or whose calls come to nothing.
func (d *door) stuck() ([]doctor.Finding, error) {
	const old, most = 10 * time.Minute, 5
	var found []doctor.Finding
	told := map[string]bool{} // types whose calls come to nothing
	n := 0
	for next := ""; n < most; {
		_, page, err := d.get("/queues?limit=500" + next)
		if err != nil {
			return found, err
		}
		for _, r := range page.records("items") {
			at, blocked := r.moment("head.since"), !r.moment("blocked_since").IsZero()
			stands := !at.IsZero() && time.Since(at) >= old && !r.moment("next_at").After(time.Now())
			if r.text("paused") != "" || !blocked && !stands || n == most {
				continue
			}
			n++
			name := "queues/" + r.text("name")
			_, why, err := d.get("/" + name + "/why")
			if err != nil {
				return found, err
			}
			found = append(found, doctor.Finding{
				Check:  "stuck queues",
				State:  doctor.Bad,
				Found:  name + ": " + why.text("summary"),
				Remedy: doctor.Shell("postern", "why", name),
			})
			if blocked {
				if err := d.blocked(&found, told, r, why); err != nil {
					return found, err
				}
			}
		}
		if page.text("next") == "" {
			break
		}
		next = "&cursor=" + page.text("next")
	}
	if n == 0 {
		found = append(found, doctor.Finding{
			Check: "stuck queues",
			State: doctor.OK,
			Found: "none has stood still for " + coarse(old),
		})
	}
	return found, nil
}

// blocked says once for each type that the calls to its worker come to nothing.
func (d *door) blocked(found *[]doctor.Finding, told map[string]bool, queue, why record) error {
	_, head, err := d.get("/transactions/" + queue.text("head.id"))
	if refusedAs(err, "not_found") { // it has ended meanwhile
		return nil
	}
	typ := head.text("type")
	if err != nil || told[typ] {
		return err
	}
	told[typ] = true
	for _, b := range why.records("blockers") {
		if b.text("kind") == "queue_blocked" {
			*found = append(*found, doctor.Finding{
				Check:  "worker of " + typ,
				State:  doctor.Bad,
				Found:  "the call of queue " + queue.text("name") + " came to nothing: " + b.text("detail"),
				Remedy: doctor.Shell("postern", "why", queue.text("head.id")),
			})
		}
	}
	return nil
}

// reach calls each worker, four at a time: any answer will do. Of one whose calls are known to come to nothing that is
// worth little, and so it is told.
func reach(ctx context.Context, workers map[string]string, known []doctor.Finding) []doctor.Finding {
	found := make(chan doctor.Finding)
	slots := make(chan struct{}, 4)
	c := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for url, typ := range workers {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found <- reachOne(ctx, c, url, typ, known)
		}()
	}
	var list []doctor.Finding
	for range workers {
		list = append(list, <-found)
	}
	slices.SortFunc(list, func(a, b doctor.Finding) int { return strings.Compare(a.Check, b.Check) })
	return list
}

// reachOne asks a worker after its health.
func reachOne(ctx context.Context, c *http.Client, url, typ string, known []doctor.Finding) doctor.Finding {
	f := doctor.Finding{Check: "worker of " + typ, State: doctor.OK, Found: url + " answers"}
	if slices.ContainsFunc(known, func(g doctor.Finding) bool { return g.Check == f.Check && g.State == doctor.Bad }) {
		f.State, f.Found = doctor.Warn, url+inVain
		f.Remedy = "what is told of the calls says why"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(url, "/")+"/health", nil)
	var res *http.Response
	if err == nil {
		res, err = c.Do(req)
	}
	switch {
	case err != nil:
		f.State, f.Found = doctor.Bad, url+" cannot be reached from this machine: "+lastOf(err).Error()
		f.Remedy = "start it; if it lives where only `postern work` can reach it, run doctor there"
	case res.StatusCode == http.StatusNotImplemented: // it has no GET /health, which the contract leaves open
	case res.StatusCode >= 500:
		f.State, f.Found = doctor.Warn, fmt.Sprintf("%s answers %s to GET /health", url, res.Status)
		f.Remedy = "its log says more"
	}
	if err == nil {
		res.Body.Close()
	}
	return f
}

// lastOf is the cause under all that wraps it.
func lastOf(err error) error {
	for {
		under := errors.Unwrap(err)
		if under == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		err = under
	}
}

// printFindings writes a line per finding, and what to do under each that is not ok.
func printFindings(out io.Writer, p paper, found []doctor.Finding) {
	width := 0
	for _, f := range found {
		width = min(max(width, len(f.Check)), 30)
	}
	for _, f := range found {
		state := string(f.State)
		io.WriteString(out, p.paint(state)+strings.Repeat(" ", 6-len(state)))
		at := p
		if at.width > 0 {
			at.width -= 6
		}
		var b strings.Builder
		at.indented(&b, f.Check, width+2, clean(f.Found))
		if f.Remedy != "" {
			at.indented(&b, "", width+2, "→ "+f.Remedy)
		}
		io.WriteString(out, strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\n", "\n      ")+"\n")
	}
}
