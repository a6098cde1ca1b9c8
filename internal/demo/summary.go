package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Summary is how a run ended. Its JSON is one line of `postern demo -o json`.
type Summary struct {
	Run          string       `json:"run"`
	Transactions int          `json:"transactions"`
	Done         int          `json:"done"`
	Failed       int          `json:"failed"` // every terminal state but DONE
	Unexpected   int          `json:"unexpected"`
	Seconds      float64      `json:"seconds"` // from the first post to the last end
	PerSecond    float64      `json:"per_second"`
	Retries      int          `json:"retries"`
	States       []StateTime  `json:"states"`
	Failures     []Failure    `json:"failures"`
	Differing    []Difference `json:"differing"`
	Example      string       `json:"example"` // the id of one that had a life
	Ledger       *Ledger      `json:"ledger"`
	Senders      int          `json:"senders"`
	Queues       int          `json:"queues"`
	Domain       *Domains     `json:"domain,omitempty"`

	kind summaryKind
}

// summaryKind is what a Summary counts.
type summaryKind int

const (
	ofTransactions summaryKind = iota
	ofBatches
	ofEvents
	ofFlows
	ofIntents
)

// StateTime is how long samples stayed in one state, over all visits.
type StateTime struct {
	State  outbox.State `json:"state"`
	Visits int          `json:"visits"`
	P50    float64      `json:"p50_seconds"`
	Max    float64      `json:"max_seconds"`
}

// Failure is one sample that did not end DONE, and why.
type Failure struct {
	UID     string       `json:"uid"`
	State   outbox.State `json:"state"`
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Note    string       `json:"note"`
}

// Difference is one sample that did not end as its file says.
type Difference struct {
	UID string `json:"uid"`
	How string `json:"how"`
}

// sum compares every end with what its sample wants and reads the histories.
func (r *run) sum(ctx context.Context) (*Summary, error) {
	s := &Summary{Run: r.Name, Transactions: len(r.order), Queues: len(r.queues()), Senders: len(Accounts),
		States: []StateTime{}, Failures: []Failure{}, Differing: []Difference{}}
	stays := map[outbox.State][]time.Duration{}
	first, last, most := time.Time{}, time.Time{}, -1
	for _, uid := range r.order {
		l := r.byUID[uid]
		t := l.tx
		if t.State == outbox.DONE {
			s.Done++
		} else {
			s.Failed++
			f := Failure{UID: uid, State: t.State, Note: l.sample.Note}
			if t.Error != nil {
				f.Code, f.Message = t.Error.Code, t.Error.Message
			}
			s.Failures = append(s.Failures, f)
		}
		if how := l.sample.Expect.unexpected(t); how != "" {
			s.Unexpected++
			s.Differing = append(s.Differing, Difference{uid, how})
		}
		s.Retries += t.Retries
		if t.Retries > most {
			most, s.Example = t.Retries, t.ID
		}
		if first.IsZero() || t.ReceivedAt.Before(first) {
			first = t.ReceivedAt
		}
		if t.DoneAt != nil && t.DoneAt.After(last) {
			last = *t.DoneAt
		}
		if err := r.stays(ctx, t, stays); err != nil {
			return nil, err
		}
	}
	s.timed(first, last)
	s.stayed(outbox.States, stays)
	var differ []Difference
	var err error
	if s.Ledger, differ, err = r.readBack(ctx); err != nil {
		return nil, fmt.Errorf("read back from the devnet: %w", err)
	}
	s.Unexpected += len(differ)
	s.Differing = append(s.Differing, differ...)
	return s, nil
}

// timed says how long it took from the first to the last.
func (s *Summary) timed(first, last time.Time) {
	s.Seconds = round(last.Sub(first).Seconds())
	if s.Seconds > 0 {
		s.PerSecond = round(float64(s.Transactions) / s.Seconds)
	}
}

// stayed tells how long visits to states took.
func (s *Summary) stayed(states []outbox.State, stays map[outbox.State][]time.Duration) {
	for _, state := range states {
		if d := stays[state]; len(d) > 0 {
			slices.Sort(d)
			s.States = append(s.States, StateTime{state, len(d), round(d[len(d)/2].Seconds()),
				round(d[len(d)-1].Seconds())})
		}
	}
}

// stays adds how long a transaction was in each of its states, as its history tells.
func (r *run) stays(ctx context.Context, t Transaction, into map[outbox.State][]time.Duration) error {
	var h page[Move]
	if err := r.client.do(ctx, http.MethodGet, "/transactions/"+t.ID+"/history", nil, &h); err != nil {
		return err
	}
	state, since := outbox.WAITING, t.ReceivedAt
	for _, m := range h.Items {
		if m.To == state || m.To == "" {
			continue
		}
		into[state] = append(into[state], m.At.Sub(since))
		state, since = m.To, m.At
	}
	return nil
}

// round keeps two digits behind the point.
func round(f float64) float64 { return math.Round(f*100) / 100 }

// words are those of what a summary counts: the things, their good end, what is said if all is well, and what carries
// the things.
func (s *Summary) words() (what, end, say, through string) {
	what, end, say = "transactions of %d queues", "DONE", "every sample ended as its file in testdata/transactions says it should, and the ledger agrees with each outcome"
	switch s.kind {
	case ofBatches:
		what, end, say = "batches in %d lines of processors", "executed",
			"every batch ended as it should, and the ledger saw exactly what its result says"
	case ofEvents:
		what, end, say = "events of %d source", "Successful",
			"every event ended as it should, and the devnet was told exactly once what came of it"
	case ofFlows:
		what, end = "jobs of %d flows", "finished"
		say = "every job ended as it should, and what its script wrote to a file is what is recorded of it"
	case ofIntents:
		what, end = "intents of %d domain", "success"
		say = "every intent ended as it should, each success is on the ledger once, and the balances agree"
	}
	through = "senders"
	switch s.kind {
	case ofFlows:
		through = "runners"
	case ofIntents:
		through = "installations"
	}
	return what, end, say, through
}

// Print writes the summary for people.
func (s *Summary) Print(out io.Writer) {
	what, end, say, through := s.words()
	fmt.Fprintf(out, "\n%d "+what+" through %d "+through+
		" in %.1f s (%.1f a second): %d done, %d ended otherwise, %d retries\n",
		s.Transactions, s.Queues, s.Senders, s.Seconds, s.PerSecond, s.Done, s.Failed, s.Retries)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(s.Failures) > 0 {
		fmt.Fprintf(out, "\nended otherwise than %s, and why:\n", end)
		for _, f := range s.Failures {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s  (%s)\n", f.UID, f.State, f.Code, f.Message, f.Note)
		}
		w.Flush()
	}
	fmt.Fprintln(out, "\ntime per state:")
	fmt.Fprintln(w, "  state\tvisits\tmedian\tlongest")
	for _, t := range s.States {
		fmt.Fprintf(w, "  %s\t%d\t%.2f s\t%.2f s\n", t.State, t.Visits, t.P50, t.Max)
	}
	w.Flush()
	if s.Domain != nil {
		s.Domain.print(out)
	}
	if l := s.Ledger; l != nil && s.kind != ofTransactions {
		fmt.Fprintf(out, "\nread back from the ledger (height %d): %d calls of %d apps, fees %s\n",
			l.Height, l.Calls, l.Apps, l.Fees)
	} else if l != nil {
		fmt.Fprintf(out, "\non the way: reorgs %d, samples dropped from the pool and sent again %d\n",
			l.Reorgs, l.Dropped)
		fmt.Fprintf(out, "read back from the ledger (height %d): %d calls of %d apps, fees %s\n",
			l.Height, l.Calls, l.Apps, l.Fees)
		as := "as the outcomes say"
		if !l.Balanced {
			as = "but the balances DIFFER"
		}
		fmt.Fprintf(out, "balances: %d transfers of %d in all, %s\n", l.Transfers, l.Moved, as)
	}
	if s.Unexpected == 0 {
		fmt.Fprintln(out, "\n"+say)
	} else {
		fmt.Fprintf(out, "\n%d UNEXPECTED:\n", s.Unexpected)
		for _, d := range s.Differing {
			fmt.Fprintf(w, "  %s\t%s\n", d.UID, d.How)
		}
		w.Flush()
	}
}

// Further lists the lines with which to look at what is there; they can be pasted into a shell.
func (s *Summary) Further(api, database string) []string {
	if s.kind == ofFlows {
		return []string{
			"curl -s " + api + "/" + s.Example,
			"curl -s " + api + "/" + s.Example + "/history",
			"curl -s -H 'Accept: text/vnd.mermaid' " + api + "/" + s.Example + "/dag",
			"psql " + quote(database) +
				" -c \"SELECT flow, ref, status, tries, error_code FROM report.jobs ORDER BY flow, ref\"",
		}
	}
	if s.kind == ofIntents {
		at, _, _ := strings.Cut(s.Example, "/intents/")
		return []string{
			"curl -s " + api + "/" + at,
			"curl -s '" + api + "/" + at + "/intents?receipt=failure'",
			"curl -s " + api + "/" + s.Example + "/history",
			"psql " + quote(database) + " -c \"SELECT domain, uid, state, receipt, text FROM report.intents\"",
		}
	}
	if s.kind == ofEvents {
		return []string{
			"curl -s '" + api + "/events?status=Dead'",
			"curl -s " + api + "/" + s.Example + "/history",
			"curl -s " + api + "/channels",
			"psql " + quote(database) + " -c \"SELECT source, status, n, lag FROM report.events\"",
		}
	}
	if s.kind == ofBatches {
		name := strings.Split(s.Example, "/")[1]
		return []string{
			"curl -s " + api + "/processors/" + name,
			"curl -s " + api + "/" + s.Example + "/history",
			"curl -s '" + api + "/processors/" + name + "/batches?result=rejected'",
			"psql " + quote(database) + " -c \"SELECT processor, id, priority, state, result, result_n, result_reason FROM report.batches WHERE processor LIKE '%-" + s.Run + "' ORDER BY id\"",
		}
	}
	return []string{
		"curl -s '" + api + "/transactions?state=FAILED'",
		"curl -s " + api + "/transactions/" + s.Example + "/history",
		"curl -s " + api + "/senders",
		"psql " + quote(database) +
			" -c \"SELECT queue, uid, state, retries, error FROM postern.transactions WHERE queue LIKE '%-" + s.Run +
			"' ORDER BY queue, position\"",
	}
}

// Try lists three lines that show what sets Postern apart, to be pasted into a shell: why something waits, whether all
// invariants hold, and what a lever would do. program is how this one was called.
func (s *Summary) Try(program, api, database string) []string {
	at := " --url " + api
	why := program + " post TRANSFER --queue try --uid try-" + s.Run + " --not-before 1h" + at + " && " +
		program + " why try-" + s.Run + at
	lever := program + " redrive state=FAILED --max 100 --dry-run" + at
	switch s.kind {
	case ofFlows:
		why, lever = program+" why "+s.Example+at, program+" pause dispatchers/job.python --dry-run"+at
	case ofIntents:
		why, lever = program+" why "+s.Example+at, program+" pause dispatchers/"+tokenType+" --dry-run"+at
	case ofEvents:
		why, lever = program+" why "+s.Example+at, program+" pause dispatchers/leader.tool --dry-run"+at
	case ofBatches:
		name := strings.Split(s.Example, "/")[1]
		why, lever = program+" why "+s.Example+at, program+" api POST '/processors/"+name+"/pause?dry_run=true'"+at
	}
	return []string{
		why + "   # what it waits for, and which lever moves it",
		program + " verify --database-url " + quote(database) + "   # what must always be true, checked on live rows",
		lever + "   # what a lever would do; nothing changes",
	}
}

// quote makes one word of a shell of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
