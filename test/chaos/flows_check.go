package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// flowCounts is what a run of the load flows has to tell besides what is wrong.
type flowCounts struct {
	Flows      int `json:"flows"`
	Jobs       int `json:"jobs"`
	Executions int `json:"executions"`        // of scripts
	Failed     int `json:"failed_once"`       // of them, on purpose
	Doubled    int `json:"double_executions"` // beyond the first under a token
	ByLapse    int `json:"of_them_by_lapse"`  // the runner was silent, or began anew
	ByLoss     int `json:"of_them_by_loss"`   // the runner was told, or found out, that it had lost the job
	ByRestore  int `json:"of_them_by_restore,omitempty"`
	Late       int `json:"late_results"` // what runners said that held the job no more
}

// flowJob is what the database says of a job.
type flowJob struct {
	id, flow, status string
	ref              int
	nonce            string // of the recorded result
	needs            []string
	tries            []flowTry
	peer             string // that it is for
	script           string // what its script calls it, where that is of another installation
}

// anyJob stands for the name of a job that the other installation has forgotten.
const anyJob = "any"

// names is what its script calls it.
func (j *flowJob) names() string {
	if j.script != "" {
		return j.script
	}
	return j.id
}

// flowTry is what it says of a try.
type flowTry struct {
	ID, Token, State, Nonce string
	Code                    string // why it failed
	ExitCode                int
	Lapses                  int
	OfferedAt               time.Time
	EndedAt                 *time.Time
}

// flowEvidence is what is compared: what scripts said, what runners wrote of their tries, and the rows.
type flowEvidence struct {
	lines  []said
	jobs   []flowJob
	starts map[string]int // by try and fence: how often runners began it
	losses map[string]int // by try and fence: how often a runner killed it, or heard at its end that it has it no more

	gaps    gaps            // what was executed in one may be lost, and executed again
	strange map[string]bool // jobs that are executed though no flow has them, since a store was restored
	early   []string        // what runners began by leave of a restored store
}

// check compares them.
func (e *flowEvidence) check(say found) (n flowCounts) {
	byID, finished := map[string]*flowJob{}, map[string]int{}
	for i := range e.jobs {
		byID[e.jobs[i].id] = &e.jobs[i]
		byID[e.jobs[i].names()] = &e.jobs[i]
	}
	for i, l := range e.lines {
		if l.What == "finish" {
			finished[l.Job+l.Nonce], finished[anyJob+l.Nonce] = i, i
		}
	}
	for _, what := range e.early {
		say("nothing leaves a store that lost something", "%s", what)
	}
	n.Jobs = len(e.jobs)
	for i := range e.jobs {
		checkRecorded(&e.jobs[i], finished, say)
	}
	began, since := map[string][]time.Time{}, map[string]time.Time{} // by token, and by execution
	for i, l := range e.lines {
		j := byID[l.Job]
		if l.What == "start" {
			since[l.Nonce] = l.At
		}
		switch {
		case j == nil && (e.strange[l.Job] || e.gaps.meet(since[l.Nonce], since[l.Nonce])):
		case j == nil:
			say("scripts are those of jobs", "%s says that it is job %s", l.Nonce, l.Job)
		case l.What == "failed":
			n.Failed++
		case l.What == "start":
			n.Executions++
			began[l.Token] = append(began[l.Token], l.At)
			if !e.gaps.at(false).meet(l.At, l.At) && !e.gapsOf(j).meet(l.At, l.At) {
				checkBegin(i, l, j, byID, finished, say)
			}
		}
	}
	for i := range e.jobs {
		e.explain(&e.jobs[i], began, &n, say)
	}
	return n
}

// gapsOf are those of the installation at which a job is executed.
func (e *flowEvidence) gapsOf(j *flowJob) gaps { return e.gaps.at(j.peer != "") }

// checkRecorded: a job has one recorded result, which one of its executions has told.
//
// A script fails on purpose with one exit code, and otherwise only where it was lost.
func checkRecorded(j *flowJob, finished map[string]int, say found) {
	const invariant = "a job has one recorded result"
	good := 0
	for _, t := range j.tries {
		if t.State == "Failed" && t.Code != "runner_lost" && (t.Code != "exit" || t.ExitCode != failsWith) {
			say("a try ends as its script does", "job %d of %s: try %s failed: %s %d", j.ref, j.flow, t.ID, t.Code,
				t.ExitCode)
		}
		if t.State != "Finished" {
			continue
		}
		if good++; t.Nonce != j.nonce {
			say(invariant, "job %d of %s has the result %q, and its try %q", j.ref, j.flow, j.nonce, t.Nonce)
		}
	}
	if j.status != "finished" || good != 1 {
		say(invariant, "job %d of %s (%s) is %s, and %d of its tries have finished", j.ref, j.flow, j.id, j.status, good)
	} else if _, told := finished[j.names()+j.nonce]; !told {
		say(invariant, "job %d of %s has the result %q, which no execution has told", j.ref, j.flow, j.nonce)
	}
}

// checkBegin: all that a job needs has finished before it begins, and it reads the recorded results; and its own
// result is not recorded yet.
func checkBegin(at int, l said, j *flowJob, byID map[string]*flowJob, finished map[string]int, say found) {
	var inputs map[string]struct{ Nonce string }
	json.Unmarshal(l.Inputs, &inputs)
	for _, id := range j.needs {
		need := byID[id]
		if need == nil {
			continue
		}
		if end, told := finished[need.names()+need.nonce]; !told || end > at {
			say("no job starts before what it needs has finished", "job %d of %s began at %s as %s; %d had not ended",
				j.ref, j.flow, clock(l.At), l.Nonce, need.ref)
		}
		if got := inputs[fmt.Sprint(need.ref)].Nonce; got != need.nonce {
			say("a job reads the recorded results", "job %d of %s reads %q of %d, whose result is %q", j.ref, j.flow, got,
				need.ref, need.nonce)
		}
	}
	for _, t := range j.tries {
		if t.State == "Finished" && l.At.After(*t.EndedAt) {
			say("no job is executed again after a recorded success",
				"job %d of %s (%s) began at %s as %s, and its success was recorded at %s", j.ref, j.flow, j.id,
				clock(l.At), l.Nonce, clock(*t.EndedAt))
		}
	}
}

// explain counts executions beyond the first of each try. Each has a hold of its own, which began since the one before
// had lapsed, or was lost.
func (e *flowEvidence) explain(j *flowJob, began map[string][]time.Time, n *flowCounts, say found) {
	for _, t := range j.tries {
		more := len(began[t.Token]) - 1
		if more < 1 {
			continue
		}
		n.Doubled += more
		if e.gapsOf(j).meet(began[t.Token][0], orZero(t.EndedAt)) { // what was said of it may be lost
			n.ByRestore += more
			continue
		}
		n.ByLapse += min(more, t.Lapses)
		n.ByLoss += max(0, more-t.Lapses)
		e.explainTry(j, t, more, say)
	}
}

// explainTry says what is wrong with the executions of a try that was executed more than once.
func (e *flowEvidence) explainTry(j *flowJob, t flowTry, more int, say found) {
	const invariant = "each double execution is explained"
	starts, losses := 0, 0
	for hold, n := range e.starts {
		if !strings.HasPrefix(hold, t.ID) {
			continue
		}
		starts, losses = starts+n, losses+e.losses[hold]
		if n > 1+e.losses[hold] {
			say(invariant, "job %d of %s: %s was begun %d times under one fence, and lost %d times", j.ref, j.flow,
				hold, n, e.losses[hold])
		}
	}
	if starts < more+1 {
		say(invariant, "job %d of %s: try %s was executed %d times, and begun by runners %d times", j.ref, j.flow, t.ID,
			more+1, starts)
	}
	if more > t.Lapses+losses {
		say(invariant, "job %d of %s: try %s was executed %d times, lapsed %d times, and was lost %d times", j.ref,
			j.flow, t.ID, more+1, t.Lapses, losses)
	}
}

// openSQL lists what is open of flows.
const openSQL = `SELECT 'flow ' || f.ref || ' is ' || f.status AS what FROM postern.flow f WHERE f.ended_at IS NULL
	UNION ALL SELECT format('job %s of flow %s is %s', j.ref, f.ref, j.status)
		FROM postern.job j JOIN postern.flow f USING (flow_id) WHERE j.ended_at IS NULL
	UNION ALL SELECT format('the transaction of job %s is open', job_id) FROM postern.job WHERE tx_open
	UNION ALL SELECT format('try %s of job %s is %s', try_id, job_id, state) FROM postern.job_try WHERE ended_at IS NULL
	UNION ALL SELECT format('the end of %s/%s is not known to its job', queue_id, seq) FROM postern.job_due`

// judgeFlows reads what scripts, runners and rows say, and compares.
func (w *world) judgeFlows(ctx context.Context, c *pgx.Conn, out *result, say found) error {
	e := &flowEvidence{lines: w.flows.ledger.lines, starts: map[string]int{}, losses: map[string]int{}}
	var err error
	if e.jobs, err = readJobs(ctx, c); err != nil {
		return err
	}
	w.readRunners(e)
	if w.pair != nil {
		w.pair.far.readRunners(e)
		e.gaps = w.pair.gaps
		if e.strange, err = w.judgePair(ctx, c, e.jobs, out, say); err != nil {
			return err
		}
	}
	n := e.check(say)
	n.Flows = len(w.flows.posts)
	for _, p := range w.flows.posts {
		if p.id == "" {
			say("every post is answered in the end", "flow %d: %s", p.ref, p.bad)
		}
		out.Unknown += p.unknown
	}
	if n.Jobs != n.Flows*flowJobs {
		say("nothing acknowledged is lost", "%d jobs of %d flows", n.Jobs, n.Flows)
	}
	open, err := listOf(ctx, c, openSQL+` LIMIT 50`)
	if err != nil {
		return err
	}
	out.Stalled = append(out.Stalled, open...)
	out.Stalled = append(out.Stalled, rowsOpen(ctx, c)...)
	out.Flows = &n
	return c.QueryRow(ctx, `SELECT count(*) FROM postern.try_late`).Scan(&n.Late)
}

// rowsOpen lists transactions that have not ended.
func rowsOpen(ctx context.Context, c *pgx.Conn) []string {
	rows, err := c.Query(ctx, `SELECT format('transaction %s is %s', coalesce(uid, id::text), state) FROM postern.tx
		WHERE state NOT IN ('DONE', 'FAILED', 'UNRESOLVED', 'CANCELLED') LIMIT 50`)
	if err != nil {
		return []string{err.Error()}
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		list = append(list, err.Error())
	}
	return list
}

// triesSQL reads the tries of a job j.
const triesSQL = `coalesce((SELECT json_agg(json_build_object('ID', t.try_id, 'Token', t.token, 'State', t.state,
		'Nonce', coalesce(t.result ->> 'nonce', ''), 'Lapses', t.lapses, 'OfferedAt', t.offered_at, 'EndedAt', t.ended_at,
		'Code', t.error_code, 'ExitCode', coalesce(t.exit_code, 0)) ORDER BY t.attempt)
	FROM postern.job_try t WHERE t.job_id = j.job_id), '[]')`

func readJobs(ctx context.Context, c *pgx.Conn) (list []flowJob, err error) {
	rows, err := c.Query(ctx, `SELECT j.job_id::text, f.ref::text, j.ref::int, j.status, coalesce(j.result ->> 'nonce', ''),
			ARRAY(SELECT e.needs::text FROM postern.job_edge e WHERE e.job_id = j.job_id),
			`+triesSQL+`, coalesce(j.peer, '')
		FROM postern.job j JOIN postern.flow f USING (flow_id)`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (j flowJob, err error) {
		if err := row.Scan(&j.id, &j.flow, &j.ref, &j.status, &j.nonce, &j.needs, &j.tries, &j.peer); err != nil {
			return j, err
		}
		return j, nil
	})
}

// readRunners reads from the logs of runners under which fences they began tries, and how often they lost one.
func (w *world) readRunners(e *flowEvidence) {
	for _, p := range w.runners {
		f, err := os.Open(filepath.Join(w.dir, p.name+".log"))
		if err != nil {
			w.note(err)
			continue
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l struct {
				Time     time.Time
				Msg, Try string
				Fence    json.Number
			}
			if json.Unmarshal(lines.Bytes(), &l) != nil || l.Try == "" {
				continue
			}
			hold := l.Try + " " + l.Fence.String()
			switch l.Msg {
			case "starts":
				e.starts[hold]++
				w.checkEarly(e, l.Time, hold, p.name)
			case "lost", "the end came too late: another holder has the try":
				e.losses[hold]++
			}
		}
		f.Close()
	}
}

// checkEarly notes a try that began before the processes had noticed a restore, by leave of the restored store.
func (w *world) checkEarly(e *flowEvidence, at time.Time, hold, runner string) {
	_, text, _ := strings.Cut(hold, " ")
	fence, _ := strconv.ParseInt(text, 10, 64)
	for _, q := range w.quiet {
		if wrong, _ := q.wrong(at, fence, nil); wrong && !at.After(q.from) {
			e.early = append(e.early, fmt.Sprintf("%s began %s at %s, restored at %s", runner, hold, clock(at),
				clock(q.restored)))
		}
	}
}
