package flows

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Taken is a try that a runner holds from now on, with all that it needs.
type Taken struct {
	*Try
	Posted     *Job
	ScriptType string
	Env        map[string]string
	Inputs     json.RawMessage // results of the jobs that it needs; nil: none
	Omitted    bool            // they are too large to be handed out with it
}

// Claimed is the answer to a claim.
type Claimed struct {
	Taken []*Taken
	Lost  []Hold // what the runner names and does not hold
}

// Empty says whether there is nothing to tell.
func (c *Claimed) Empty() bool { return len(c.Taken)+len(c.Lost) == 0 }

// mostClaimed is how many tries one claim hands out, those included that it hands out again. mostBytes is how many
// bytes of scripts and environments, and how many of inputs, it hands out where it hands out more than one. A runner
// reads an answer whole, and must know of its tries within missedAfter, also over a slow line. It claims again at once
// while it has room.
const (
	mostClaimed = 32
	mostBytes   = 512 << 10
)

// missedAfter is how long after a try was handed out its runner must know of it.
const missedAfter = 5 * time.Second

// Claim hands a runner up to max tries of its lanes, the oldest first, as far as it has slots, and with them those that
// it was handed in an answer that it did not get. holds is all that it knows to hold. Outcomes besides: NotFound;
// Conflict "stale_epoch", "runner_paused".
//
// Two claims of one runner are serial by the lock of its row, so that its slots hold. Claims of two runners skip what
// the other has locked. Jobs are locked behind their tries, and in front of them those of their flows that have not
// started: from the second job of a flow on there is none. No holder of a flow or a job waits for a try.
func (s *Store) Claim(ctx context.Context, contextID int32, name string, epoch int64, max int,
	holds []Hold) (c *Claimed, err error) {
	var seen []offer
	var at []time.Time
	err = s.Run(ctx, func(t *db.Txn) error {
		r, err := s.lockRunner(ctx, t, contextID, name, epoch)
		if err != nil {
			return err
		}
		if r.Paused {
			return fault.New(fault.Conflict, "runner_paused",
				"runner %q is paused: it is handed no jobs until somebody resumes it", fault.Clip(name))
		}
		b := &pgx.Batch{}
		c = &Claimed{}
		var again []*Try
		c.Lost, again = r.compare(b, holds)
		again = slices.DeleteFunc(again, func(v *Try) bool { return s.quarantined(r, v.Lane) })
		again = again[:min(len(again), mostClaimed)] // the others come with the next claim
		handedAgain(b, again, r.now)
		room := min(max-len(again), r.Slots-len(r.tries), mostClaimed-len(again))
		fresh, err := s.takeOffers(ctx, t, r, room)
		if err != nil {
			return err
		}
		if c.Taken, err = s.begin(ctx, t, b, r, fresh, again); err != nil {
			return err
		}
		seen, at = nil, nil
		for _, v := range fresh {
			if v.State != flow.Offered {
				seen, at = append(seen, offer{v.context, v.Lane}), append(at, v.OfferedAt)
			}
		}
		r.saw(b, true)
		if b.Len() == 0 {
			return t.Rollback(ctx)
		}
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	for i, o := range seen {
		s.fronts.saw(o, at[i])
	}
	return c, nil
}

// lockRunner locks the row of a runner, and reads what it holds behind that lock. What it holds is not locked: only an
// end changes that beside the holder of this lock.
func (s *Store) lockRunner(ctx context.Context, t *db.Txn, contextID int32, name string, epoch int64) (*heldRunner,
	error) {
	r := &heldRunner{context: contextID}
	b := &pgx.Batch{}
	b.Queue(`SELECT `+runnerColumns+`, coalesce($3::timestamptz, clock_timestamp())
		FROM postern.runner r
		WHERE r.context_id = $1 AND r.name = $2 AND r.removed_at IS NULL
		FOR UPDATE`, contextID, name, s.LeaseNow()).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, append(r.fields(), &r.now), func() error { return nil })
		return err
	})
	b.Queue(`SELECT `+tryColumns+`
		FROM postern.job_try t
		WHERE t.runner_id = (SELECT r.runner_id FROM postern.runner r WHERE r.context_id = $1 AND r.name = $2)
			AND t.state = 'Held'
		ORDER BY t.try_id`, contextID, name).Query(collectTries(&r.tries))
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	switch {
	case r.ID == 0:
		return nil, noRunner(name)
	case r.Epoch != epoch || epoch == 0:
		return nil, fault.New(fault.Conflict, "stale_epoch",
			"epoch %d of runner %q is over: another process registered under that name, "+
				"or it was removed and made again. POST /runners/%s/register begins a new "+
				"one", epoch, fault.Clip(name), name)
	}
	return r, nil
}

// saw adds to b that the runner was seen: at most ten times in its ttl, and once a second. The runner counts its ttl
// also from a heartbeat that is not written, and kills its scripts two seconds before the end, or a quarter of a short
// ttl. The time that is left out must be less than that.
func (r *heldRunner) saw(b *pgx.Batch, claims bool) {
	lately := min(r.TTL/10, time.Second)
	if r.SeenAt != nil && r.now.Sub(*r.SeenAt) < lately && (!claims || r.ClaimedAt != nil &&
		r.now.Sub(*r.ClaimedAt) < lately) {
		return
	}
	b.Queue(`UPDATE postern.runner SET seen_at = $2, claimed_at = CASE WHEN $3 THEN $2 ELSE claimed_at END
		WHERE runner_id = $1`, r.ID, r.now, claims)
}

// compare holds what the runner names against what it holds by the rows. lost is what it names and does not hold. What
// it holds and does not name was handed to it in an answer that may be under way, so that it is only noted; where it
// was noted before, and long enough after it was handed out, the answer is lost, and it is missed.
func (r *heldRunner) compare(b *pgx.Batch, holds []Hold) (lost []Hold, missed []*Try) {
	own := map[Hold]bool{}
	for _, v := range r.tries {
		own[Hold{v.ID, v.Fence}] = true
	}
	for _, h := range holds {
		if !own[h] {
			lost = append(lost, h)
		}
	}
	var first, known []uuid.UUID
	for _, v := range r.tries {
		switch {
		case slices.Contains(holds, Hold{v.ID, v.Fence}):
			if v.MissedAt != nil {
				known = append(known, v.ID)
			}
		case v.MissedAt == nil:
			first = append(first, v.ID)
		case v.HeldAt != nil && r.now.Sub(*v.HeldAt) > missedAfter:
			missed = append(missed, v)
		}
	}
	if len(first) > 0 {
		b.Queue(`UPDATE postern.job_try SET missed_at = $2 WHERE try_id = ANY ($1) AND state = 'Held'`, first, r.now)
	}
	if len(known) > 0 {
		b.Queue(`UPDATE postern.job_try SET missed_at = NULL WHERE try_id = ANY ($1) AND state = 'Held'`, known)
	}
	return lost, missed
}

// handedAgain has tries count as handed out now: a heartbeat that was sent before the answer to this claim, and comes
// after it, does not name them, and would else have another runner execute them, too.
func handedAgain(b *pgx.Batch, again []*Try, now time.Time) {
	var ids []uuid.UUID
	for _, v := range again {
		v.HeldAt, v.MissedAt, ids = &now, nil, append(ids, v.ID)
	}
	if len(ids) > 0 {
		b.Queue(`UPDATE postern.job_try SET held_at = $2, missed_at = NULL WHERE try_id = ANY ($1) AND state = 'Held'`,
			ids, now)
	}
}

// quarantined says whether nothing of a lane is handed to a runner. What it holds by a row from a backup it may have
// executed since, so that such a try is not handed out again, either: a heartbeat offers it, and it waits.
func (s *Store) quarantined(r *heldRunner, lane string) bool {
	return s.Quarantined(r.context, flow.Type(flow.TypeOfLane(lane)))
}

// paused says whether nothing more of a lane is handed out, since its type or its context is paused. What a runner was
// handed already is not kept from it: that goes on, as a call of a worker does.
func (s *Store) paused(r *heldRunner, lane string) bool {
	d := s.DispatcherOf(r.context, flow.Type(flow.TypeOfLane(lane))) // paused, too, where its context is
	return d != nil && d.Paused
}

// takeOffers locks the oldest offers of the lanes of a runner: of each lane as many as it has room for, in one read of
// the index each, merged here. What another claim has locked is skipped.
func (s *Store) takeOffers(ctx context.Context, t *db.Txn, r *heldRunner, room int) (list []*Try, err error) {
	lanes := slices.DeleteFunc(slices.Clone(r.lanes()), func(lane string) bool {
		return s.quarantined(r, lane) || s.paused(r, lane)
	})
	if room <= 0 || len(lanes) == 0 {
		return nil, nil
	}
	from := s.fronts.of(r.context, lanes)
	b := &pgx.Batch{}
	b.Queue(`SELECT x.*
		FROM ROWS FROM (unnest($2::text[]), unnest($3::timestamptz[])) n(lane, oldest)
		CROSS JOIN LATERAL (
			SELECT `+tryColumns+`
			FROM postern.job_try t
			WHERE t.context_id = $1
				AND t.lane = n.lane
				AND t.state = 'Offered'
				AND t.offered_at >= n.oldest
			ORDER BY t.offered_at, t.try_id
			LIMIT $4
			FOR UPDATE OF t SKIP LOCKED) x`, r.context, lanes, from, room).Query(collectTries(&list))
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b *Try) int { return a.OfferedAt.Compare(b.OfferedAt) })
	return list[:min(len(list), room)], nil
}

// begin has the runner hold fresh offers, and reads what it needs for them and for those that it is handed again. The
// offer of a job that has ended meanwhile is withdrawn.
func (s *Store) begin(ctx context.Context, t *db.Txn, b *pgx.Batch, r *heldRunner, fresh,
	again []*Try) (out []*Taken, err error) {
	all := slices.Concat(fresh, again)
	if len(all) == 0 {
		return nil, nil
	}
	jobs, unstarted, now, err := s.lockFor(ctx, t, all)
	if err != nil {
		return nil, err
	}
	for _, v := range asFit(fresh, jobs) {
		j := jobs[v.Job]
		if j == nil || j.Status.Ended() || j.StopAt != nil {
			if _, err := s.move(b, v, flow.TryWithdrawn, ending{code: flow.CodeCancelled,
				text: "its job had ended before a runner took it"}, r.now); err != nil {
				return nil, err
			}
			continue
		}
		v.Runner, v.Epoch = r.ID, r.Epoch
		end := r.now.Add(j.Timeout)
		v.Deadline = &end
		if _, err := s.move(b, v, flow.TryClaimed, ending{}, r.now); err != nil {
			return nil, err
		}
		if err := s.moveJob(b, j, change{on: flow.JobClaimed, by: r.Name, now: now}); err != nil {
			return nil, err
		}
		out = append(out, &Taken{Try: v, Posted: j})
		if j.Flow == nil || unstarted[*j.Flow] == nil {
			continue
		}
		if _, err := s.moveFlow(b, unstarted[*j.Flow], flow.FlowBegun, flow.Facts{},
			change{by: r.Name, now: now}); err != nil {
			return nil, err
		}
		delete(unstarted, *j.Flow)
	}
	for _, v := range again {
		if j := jobs[v.Job]; j != nil {
			out = append(out, &Taken{Try: v, Posted: j})
		}
	}
	return out, s.provide(ctx, t, out)
}

// asFit returns the first of fresh offers that one answer carries. The others stay offered, in their order.
func asFit(fresh []*Try, jobs map[uuid.UUID]*Job) []*Try {
	bytes := 0
	for i, v := range fresh {
		if j := jobs[v.Job]; j != nil {
			bytes += j.Size()
		}
		if i > 0 && bytes > mostBytes {
			return fresh[:i]
		}
	}
	return fresh
}

// lockFor locks the jobs of tries, and in front of them those of their flows that have not started.
func (s *Store) lockFor(ctx context.Context, t *db.Txn, tries []*Try) (jobs map[uuid.UUID]*Job,
	unstarted map[uuid.UUID]*Flow, now time.Time, err error) {
	ids := make([]uuid.UUID, len(tries))
	for i, v := range tries {
		ids[i] = v.Job
	}
	var list []*Job
	var flows []*Flow
	b := &pgx.Batch{}
	b.Queue(`SELECT `+flowColumns+`
		FROM postern.flow f
		WHERE f.flow_id IN (SELECT j.flow_id FROM postern.job j WHERE j.job_id = ANY ($1))
			AND f.status IN ('dispatched', 'waiting_for_prerequisites')
		ORDER BY f.flow_id
		FOR UPDATE OF f`, ids).Query(collectFlows(&flows))
	b.Queue(`SELECT `+jobColumns+`
		FROM postern.job j
		WHERE j.job_id = ANY ($1)
		ORDER BY j.job_id
		FOR UPDATE OF j`, ids).Query(collectJobs(&list))
	s.ReadNow(b, &now)
	err = t.Send(ctx, b)
	jobs, unstarted = map[uuid.UUID]*Job{}, map[uuid.UUID]*Flow{}
	for _, j := range list {
		jobs[j.ID] = j
	}
	for _, f := range flows {
		unstarted[f.ID] = f
	}
	return jobs, unstarted, now, err
}

// provide reads the environment of tries and the results of what their jobs need.
func (s *Store) provide(ctx context.Context, t *db.Txn, list []*Taken) error {
	of := map[uuid.UUID]*Taken{}
	ids := make([]uuid.UUID, 0, len(list))
	for _, v := range list {
		v.ScriptType, v.Env = v.Posted.ScriptType, v.Posted.environment(s.nameOf(v.context), v.Try)
		of[v.Job] = v
		ids = append(ids, v.Job)
	}
	if len(ids) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	var job uuid.UUID
	var inputs []byte
	var size, all int
	b.Queue(inputsSQL, ids).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&job, &size, &inputs}, func() error {
			v := of[job]
			if size > flow.MaxInputs || all > 0 && all+len(inputs) > mostBytes || twin.Planted("inputs_left_out") {
				v.Omitted = true
				return nil
			}
			v.Inputs = slices.Clone(inputs)
			all += len(inputs)
			return nil
		})
		return err
	})
	return t.Send(ctx, b)
}

// inputsSQL reads, for each of some jobs that need others, their results by their refs. A job that a peer has brought
// has them with it.
const inputsSQL = `SELECT e.job_id, coalesce(sum(octet_length(n.result::text)), 0)::int,
		jsonb_object_agg(coalesce(n.ref::text, n.uid, n.job_id::text), coalesce(n.result, '{}'))
	FROM postern.job_edge e
	JOIN postern.job n ON n.job_id = e.needs
	WHERE e.job_id = ANY ($1)
	GROUP BY e.job_id
	UNION ALL
	SELECT j.job_id, 0, j.inputs
	FROM postern.job j
	WHERE j.job_id = ANY ($1) AND j.inputs IS NOT NULL`

// Inputs are the results of the jobs that one needs, by their refs.
func (s *Store) Inputs(ctx context.Context, contextID int32, id uuid.UUID) (json.RawMessage, error) {
	if _, err := s.Job(ctx, contextID, id); err != nil {
		return nil, err
	}
	var job uuid.UUID
	var size int
	inputs := []byte("{}")
	err := s.Db(ctx).QueryRow(ctx, inputsSQL, []uuid.UUID{id}).Scan(&job, &size, &inputs)
	if db.IsNoRows(err) {
		err = nil
	}
	return inputs, db.Known(err)
}

// Await waits for an offer in the lanes of a runner, for a time or until c is closed. It looks once a second, and is
// woken by offers of this process.
func (s *Store) Await(ctx context.Context, contextID int32, name string, length time.Duration,
	end <-chan struct{}) error {
	r, err := s.Runner(ctx, contextID, name)
	if err != nil {
		return err
	}
	lanes := r.lanes()
	rung, down := s.bells.hang(contextID, lanes)
	defer down()
	return db.Await(ctx, db.Waiting{
		Length: length,
		Every:  fullLook,
		End:    end,
		Rung:   func() <-chan struct{} { return rung },
		First:  true,
		There: func(ctx context.Context) (there bool, err error) {
			err = s.Db(ctx).QueryRow(ctx, `SELECT EXISTS (
				SELECT FROM unnest($2::text[]) n(lane)
				CROSS JOIN LATERAL (
					SELECT FROM postern.job_try t
					WHERE t.context_id = $1 AND t.lane = n.lane AND t.state = 'Offered'
					LIMIT 1) x)`, contextID, lanes).Scan(&there)
			return there, err
		},
	})
}
