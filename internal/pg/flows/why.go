package flows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// followed is how many jobs one answer follows that wait for each other.
const followed = 10

// explain gathers what is in the way of a job.
type explain struct {
	s       *Store
	ctx     context.Context
	context int32
	now     time.Time
	seen    map[uuid.UUID]bool
	w       *reads.Why
}

func (x *explain) add(b reads.Blocker) { x.w.Blockers = append(x.w.Blockers, b) }

// WhyJob explains a job, from what it needs to the runner that holds it; NotFound. It locks nothing: its answer was
// true a moment ago.
func (s *Store) WhyJob(ctx context.Context, contextID int32, id uuid.UUID) (*reads.Why, error) {
	j, err := s.Job(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	x, err := s.explain(ctx, contextID, string(j.Status))
	if err != nil {
		return nil, err
	}
	if err := x.job(j); err != nil {
		return nil, err
	}
	x.w.Summary = x.summary("job " + j.name())
	return x.w, nil
}

// WhyFlow explains a flow by its jobs that have not ended and need no other that has not.
func (s *Store) WhyFlow(ctx context.Context, contextID int32, id uuid.UUID) (*reads.Why, error) {
	f, err := s.Flow(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	x, err := s.explain(ctx, contextID, string(f.Status))
	if err != nil {
		return nil, err
	}
	jobs, err := s.JobsOf(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	switch {
	case f.Status.Ended():
		x.ended("/flows/"+id.String(), f.EndedAt, f.Code, f.Error)
	case f.ReleasedAt == nil:
		x.unstarted(id, f.CreatedAt)
	default:
		open := map[int64]bool{}
		for _, j := range jobs {
			open[*j.Ref] = !j.Status.Ended()
		}
		for _, j := range jobs {
			if !open[*j.Ref] || slices.ContainsFunc(j.Dependends, func(ref int64) bool { return open[ref] }) ||
				len(x.seen) >= followed {
				continue
			}
			x.add(reads.Blocker{Kind: "needs_job", Object: "/jobs/" + j.ID.String(), Since: j.UpdatedAt,
				Detail: fmt.Sprintf("it waits for job %s, which is %s", j.name(), j.Status)})
			if err := x.job(j); err != nil {
				return nil, err
			}
		}
	}
	x.w.Summary = x.summary("flow " + id.String())
	return x.w, nil
}

func (s *Store) explain(ctx context.Context, contextID int32, state string) (*explain, error) {
	x := &explain{s: s, ctx: ctx, context: contextID, seen: map[uuid.UUID]bool{},
		w: &reads.Why{State: state, Blockers: []reads.Blocker{}}}
	err := s.Db(ctx).QueryRow(ctx, `SELECT coalesce($1::timestamptz, clock_timestamp())`, s.LeaseNow()).Scan(&x.now)
	return x, db.Known(err)
}

func (x *explain) summary(what string) string {
	switch n := len(x.w.Blockers); {
	case n > 0:
		last := x.w.Blockers[n-1]
		return fmt.Sprintf("%s is %s: %s", what, x.w.State, last.Detail)
	case x.w.Moving:
		return fmt.Sprintf("%s is %s, and goes on by itself", what, x.w.State)
	}
	return fmt.Sprintf("%s is %s", what, x.w.State)
}

func (x *explain) ended(object string, at *time.Time, code, text string) {
	b := reads.Blocker{Kind: "terminal", Object: object, Since: *at, Detail: "it has ended"}
	if code != "" {
		b.Detail = fmt.Sprintf("it has ended (%s): %s", code, text)
	}
	x.add(b)
}

func (x *explain) unstarted(id uuid.UUID, since time.Time) {
	path := "/flows/" + id.String()
	x.add(reads.Blocker{Kind: "flow_not_started", Object: path, Since: since, Detail: "its flow was not started",
		Levers: []reads.Lever{{Method: "POST", Path: path + "/start", Role: "admin"}}})
}

// job adds what is in the way of one.
func (x *explain) job(j *Job) error {
	if x.seen[j.ID] || len(x.seen) >= followed {
		return nil
	}
	x.seen[j.ID] = true
	path := "/jobs/" + j.ID.String()
	switch {
	case j.Status.Ended():
		x.ended(path, j.EndedAt, j.Code, j.Error)
		return nil
	case j.Flow != nil && !j.TxOpen:
		x.unstarted(*j.Flow, j.CreatedAt)
		return nil
	}
	waits, err := x.needs(j, path)
	if err != nil || waits {
		return err
	}
	return x.carried(j, path)
}

// needs adds what the job waits for besides a runner.
func (x *explain) needs(j *Job, path string) (waits bool, err error) {
	for _, n := range j.Named {
		if n.MetAt != nil {
			continue
		}
		b := reads.Blocker{Kind: "need_open", Object: path, Since: j.UpdatedAt,
			Detail: fmt.Sprintf("prerequisite %q is not met", n.Name),
			Levers: []reads.Lever{{Method: "POST", Path: path + "/prerequisites", Role: "executor",
				Body: map[string]any{"met": []string{n.Name}}}}}
		if n.Deadline != nil {
			b.Next = &reads.NextStep{At: *n.Deadline, What: "the job fails, if it is not met until then"}
		}
		x.add(b)
		waits = true
	}
	for _, id := range j.Needs {
		other, err := x.s.Job(x.ctx, x.context, id)
		if err != nil {
			return waits, err
		}
		if other.Status.Ended() {
			continue
		}
		waits = true
		if x.seen[id] || len(x.seen) >= followed {
			continue
		}
		x.add(reads.Blocker{Kind: "needs_job", Object: "/jobs/" + id.String(), Since: other.UpdatedAt,
			Detail: fmt.Sprintf("job %s needs job %s, which is %s", j.name(), other.name(), other.Status)})
		if err := x.job(other); err != nil {
			return waits, err
		}
	}
	return waits, nil
}

// carried adds what is in the way of the transaction of a job, or of its try.
func (x *explain) carried(j *Job, path string) error {
	id, err := outbox.ParseID(j.Tx)
	if err != nil { // it has none yet
		shut, err := x.shut(j, j.UpdatedAt)
		x.w.Moving = x.w.Moving || err == nil && !shut
		return err
	}
	var list []*Try
	rows, err := x.s.Db(x.ctx).Query(x.ctx, `SELECT `+tryColumns+`
		FROM postern.job_try t
		WHERE t.job_id = $1 AND t.state IN ('Offered', 'Held', 'Sent')`, j.ID)
	if err != nil {
		return db.Known(err)
	}
	if list, err = pgx.CollectRows(rows, scanTry); err != nil {
		return db.Known(err)
	}
	for _, v := range list {
		switch v.State {
		case flow.Held:
			return x.held(j, v, path)
		case flow.Sent:
			return x.sent(v)
		}
		return x.offered(j, v, path)
	}
	w, err := x.s.reads.Why(x.ctx, x.context, id)
	if err != nil {
		return err
	}
	x.w.Moving = x.w.Moving || w.Moving
	x.w.Blockers = append(x.w.Blockers, w.Blockers...)
	return nil
}

// held adds that a runner has it.
func (x *explain) held(j *Job, v *Try, path string) error {
	r, err := x.runner(v.Runner)
	if err != nil {
		return err
	}
	at := "/runners/" + r.Name
	b := reads.Blocker{Kind: "in_runner", Object: at, Since: *v.HeldAt,
		Detail: fmt.Sprintf("runner %s executes it, attempt %d", r.Name, v.Attempt)}
	if line := x.lastLine(v); line != "" {
		b.Detail += ", and wrote last: " + line
	}
	until := r.SeenAt.Add(r.patience)
	switch {
	case j.StopAt != nil:
		b.Kind, b.Detail = "stopping", fmt.Sprintf("runner %s is told to stop it: %s", r.Name, j.StopWhy)
		b.Next = &reads.NextStep{At: j.StopAt.Add(r.patience + flow.StopGrace), What: "it counts as stopped"}
	case until.Before(x.now.Add(-r.patience / 2)):
		b.Kind = "runner_silent"
		b.Detail = fmt.Sprintf("runner %s, which holds it, was not heard of since %s", r.Name,
			r.SeenAt.UTC().Format(time.RFC3339))
		b.Next = &reads.NextStep{At: until, What: "it is offered to another runner"}
	case v.Deadline != nil:
		b.Next = &reads.NextStep{At: *v.Deadline, What: "its time is over"}
	}
	b.Levers = []reads.Lever{{Method: "POST", Path: path + "/cancel", Role: "admin"}}
	x.w.Moving = true
	x.add(b)
	return nil
}

func (x *explain) runner(id int32) (*Runner, error) {
	r := &heldRunner{}
	err := x.s.Db(x.ctx).QueryRow(x.ctx, `SELECT `+runnerColumns+`
		FROM postern.runner r
		WHERE r.runner_id = $1`, id).Scan(r.fields()...)
	return &r.Runner, db.Known(err)
}

func (x *explain) lastLine(v *Try) (text string) {
	_ = x.s.Db(x.ctx).QueryRow(x.ctx, `SELECT left(l.text, 200)
		FROM postern.try_log l
		WHERE (l.try_id, l.fence) = ($1, $2)
		ORDER BY l.n DESC
		LIMIT 1`, v.ID, v.Fence).Scan(&text) // none: it has written nothing
	return text
}

// shut adds what keeps all jobs of its script type here: a quarantine, or a pause.
func (x *explain) shut(j *Job, since time.Time) (bool, error) {
	list, err := x.s.reads.Shut(x.ctx, x.context, flow.Type(j.ScriptType), since)
	x.w.Blockers = append(x.w.Blockers, list...)
	return len(list) > 0, err
}

// offered adds why no runner has taken it: none is handed anything of its type, there is none, or those that there are
// do not take it now.
func (x *explain) offered(j *Job, v *Try, path string) error {
	if shut, err := x.shut(j, v.OfferedAt); shut || err != nil {
		return err
	}
	runners, err := x.s.Runners(x.ctx, x.context, "", 1000)
	if err != nil {
		return err
	}
	b := reads.Blocker{Kind: "no_runner", Object: path, Since: v.OfferedAt,
		Levers: []reads.Lever{{Method: "POST", Path: path + "/cancel", Role: "admin"}}}
	var types, lack, busy, paused, silent []string
	for _, r := range runners {
		why, lacks := r.Missing[j.ScriptType]
		switch {
		case lacks:
			lack = append(lack, r.Name+": "+why)
		case !slices.Contains(r.lanes(), v.Lane):
			if r.Live {
				types = append(types, r.lanes()...)
			}
		case r.Paused:
			paused = append(paused, r.Name)
		case !r.Live:
			silent = append(silent, r.Name)
		case r.Held >= r.Slots:
			busy = append(busy, r.Name)
		default:
			x.w.Moving = true
			return nil
		}
	}
	switch {
	case len(busy) > 0:
		b.Kind, b.Detail = "runner_busy", "all slots are taken of "+strings.Join(busy, ", ")
		x.w.Moving = true
	case len(paused) > 0:
		b.Kind, b.Detail = "runner_paused", "paused: "+strings.Join(paused, ", ")
		b.Object = "/runners/" + paused[0]
		b.Levers = append(b.Levers, reads.Lever{Method: "POST", Path: b.Object + "/resume", Role: "admin"})
	case len(silent) > 0:
		b.Kind, b.Detail = "runner_silent", "not heard of within its ttl: "+strings.Join(silent, ", ")
		b.Object = "/runners/" + silent[0]
	case len(lack) > 0:
		b.Detail = fmt.Sprintf("no runner has the interpreter of %s (%s)", j.ScriptType, strings.Join(lack, "; "))
	default:
		slices.Sort(types)
		b.Detail = fmt.Sprintf("no runner takes %s; those that are alive take %s", v.Lane,
			nonEmpty(strings.Join(slices.Compact(types), ", ")))
	}
	x.add(b)
	return nil
}

func nonEmpty(list string) string {
	if list == "" {
		return "nothing"
	}
	return list
}
