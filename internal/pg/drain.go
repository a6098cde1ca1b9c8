package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Drainer moves the rows that postern.submit has staged into their queues, in the order in which they were staged.
// Any process may drain, and several at once; one Drainer is used by one goroutine.
//
// Why a queue is never reordered, and nothing is skipped: the queue row is locked first, and the staged rows of that
// queue are read by a statement behind the lock, all that are visible, in the order of stage_id. Where submission A
// had committed before submission B was called, A has the lower stage_id, and a drain that sees B sees A, or A has
// its position already. (Two drains that took rows with SKIP LOCKED would reorder: the second takes the second row
// and commits first.) Which queues have staged rows is asked by name, each time: there is no mark that says how far
// was read, behind which a row with a low number could commit late.
//
// Why nothing is posted twice: staged rows are deleted in the commit that gives them their positions, and every one
// has a uid, whose key is inserted there too.
type Drainer struct {
	s    *Store
	from nameKey // the last queue looked at, so that busy ones do not starve those behind them
	sick map[nameKey]sickness
}

// NewDrainer returns a Drainer over s.
func NewDrainer(s *Store) *Drainer { return &Drainer{s: s, sick: map[nameKey]sickness{}} }

// Drained is what one round did.
type Drained struct {
	Rows    int   // that are staged no more
	Refused int   // of these, that ended FAILED
	More    bool  // another round will find more
	Failed  error // of queues, and of rows without one, that cannot be written: nil if all could
}

// round is what one round did, and what it left for a commit of its own.
type round struct {
	Drained
	dependents []stagedRow // that come first in their queues
	waits      bool        // a dependent waits for more than a commit
}

// A round takes at most so many queues and rows; rows may have 256 KiB each.
const drainQueues, drainRows = 64, 128

// judgeFor is how long data is held against schemas while the queues of a round are locked: the row that takes it
// longer is its last, and the rows behind it wait for the next round.
var judgeFor = time.Second

// Once takes one round: of up to 64 queues that have staged rows, the oldest ones. A row that cannot be accepted any
// more ends FAILED with the code of its refusal, under an id of its own at the end of its queue, where it holds up
// nothing; with the uid of another transaction it has none. Once waits for a locked queue, alone and for a tenth of a
// second, and leaves it for the next round then. A queue that cannot be written is told in Failed, and left alone for a
// while; the error is of what concerns all of them.
func (d *Drainer) Once(ctx context.Context) (Drained, error) {
	var out round
	err := d.once(ctx, &out)
	return out.Drained, err
}

func (d *Drainer) once(ctx context.Context, out *round) error {
	names, err := d.s.staged(ctx, d.from)
	if err != nil {
		return err
	}
	full := len(names) > 0 && len(names) >= drainQueues-1
	out.More = full || d.from.name != "" // then it begins anew
	if d.from = (nameKey{}); full {
		d.from = names[drainQueues-2]
	}
	if len(names) == 0 {
		return nil
	}
	left, err := d.drainApart(ctx, d.healthy(names), true, out)
	if err == nil {
		err = d.drainDependents(ctx, out)
	}
	for _, name := range left {
		if err != nil {
			break
		}
		_, err = d.drain(ctx, []nameKey{name}, false, 0, out)
		switch {
		case fault.CodeOf(err) == "overloaded":
			out.More, err = true, nil
		case err != nil && !ofAll(ctx, err):
			d.failed(name, err, out)
			err = nil
		}
	}
	return err
}

// ofAll says whether an error concerns all that is drained: the database is away, or the process ends.
func ofAll(ctx context.Context, err error) bool {
	return fault.KindOf(err) == fault.Retry || ctx.Err() != nil
}

// drainApart drains queues in one commit, and those of a commit that fails for another reason than the
// database in several, so that one bad row keeps none of another queue. Rows without a queue are parted, too.
func (d *Drainer) drainApart(ctx context.Context, names []nameKey, skip bool, out *round) ([]nameKey, error) {
	if len(names) == 0 {
		return nil, nil
	}
	left, err := d.drain(ctx, names, skip, 0, out)
	switch {
	case err == nil || ofAll(ctx, err):
		return left, err
	case len(names) == 1 && loose(names[0].name):
		return nil, d.drainLoose(ctx, names[0], out)
	case len(names) == 1:
		d.failed(names[0], err, out)
		return nil, nil
	}
	half := len(names) / 2
	first, err := d.drainApart(ctx, names[:half], skip, out)
	if err != nil {
		return first, err
	}
	second, err := d.drainApart(ctx, names[half:], skip, out)
	return append(first, second...), err
}

// staged lists queues with staged rows, those after from first; unordered rows are of the queue "". It goes by indexes,
// however small the table was when it was last analyzed, as all our connections do (Connect).
func (s *Store) staged(ctx context.Context, from nameKey) (names []nameKey, err error) {
	rows, err := s.Looks.Query(ctx, `WITH RECURSIVE q (queue, context_id) AS (
			(SELECT o.queue, o.context_id FROM postern.outbox o WHERE (o.queue, o.context_id) > ($1, $2)
				ORDER BY o.queue, o.context_id LIMIT 1)
			UNION ALL
			SELECT n.queue, n.context_id FROM q CROSS JOIN LATERAL (SELECT o.queue, o.context_id FROM postern.outbox o
				WHERE (o.queue, o.context_id) > (q.queue, q.context_id) ORDER BY o.queue, o.context_id LIMIT 1) n)
		(SELECT queue, context_id FROM q LIMIT $3)
		UNION ALL (SELECT '', 0 WHERE EXISTS (SELECT FROM postern.outbox o WHERE o.queue IS NULL))`,
		from.name, from.context, drainQueues-1)
	if err != nil {
		return nil, db.Known(err)
	}
	var n nameKey
	_, err = pgx.ForEachRow(rows, []any{&n.name, &n.context}, func() error { names = append(names, n); return nil })
	return names, db.Known(err)
}

// drain gives staged rows of these queues their positions, in one commit. It returns the queues that it
// skipped because they are locked; if it is not to skip any, it waits a tenth of a second. Of rows without a queue,
// only means one alone, unless it is 0.
func (d *Drainer) drain(ctx context.Context, names []nameKey, skip bool, only int64, out *round) (
	left []nameKey, err error) {
	s := d.s
	if err := s.EnsureQueues(ctx, ofQueues(names)); err != nil {
		return nil, err
	}
	reread := false
	var done round
	err = s.Run(ctx, func(t *db.Txn) error {
		left, done = nil, round{}
		rows, err := d.takeStaged(ctx, t, names, skip, only, &left)
		if err != nil {
			return err
		}
		done.More = cut(rows, drainRows/len(names))
		rows = done.putAside(rows)
		if len(rows) == 0 {
			return t.Rollback(ctx)
		}
		in := &ingest{reread: &reread, s: s, e: newEffects(s)}
		began := time.Now()
		for i, r := range rows {
			if i > 0 && time.Since(began) > judgeFor {
				rows, done.More = rows[:i], true
				break
			}
			s.Judge(r.sub)
			in.subs = append(in.subs, r.sub)
		}
		in.out = make([]Accepted, len(rows))
		if err := in.load(ctx, t); err != nil {
			return err
		}
		if err := in.decide(ctx, t); err != nil {
			return err
		}
		for i, a := range in.out {
			if a.Err != nil {
				done.Refused++
				if err := in.turnDown(ctx, t, rows[i].sub, fault.As(a.Err)); err != nil {
					return err
				}
			}
		}
		b := &pgx.Batch{}
		done.remove(b, rows, in.again)
		if len(in.tasks) > 0 {
			in.write(b)
		}
		return in.e.commit(ctx, t, b)
	})
	if err == nil {
		out.add(done)
		d.recovered(names)
	}
	return left, err
}

// cut says whether a queue, or all rows without one, had as many rows as were taken of each: there may be more.
func cut(rows []stagedRow, most int) bool {
	taken := map[nameKey]int{}
	for _, r := range rows {
		name := nameKey{}
		if r.sub.Queue != "" {
			name = nameKey{r.sub.ContextID, r.sub.Queue}
		}
		if taken[name]++; taken[name] >= most {
			return true
		}
	}
	return false
}

// ofQueues makes a submission for each queue that can have a name, as EnsureQueues wants them.
func ofQueues(names []nameKey) (subs []*Submission) {
	for _, n := range names {
		if !loose(n.name) {
			subs = append(subs, &Submission{ContextID: n.context, Queue: n.name})
		}
	}
	return subs
}

// remove takes rows away that have been posted or refused, and counts them; those of again wait for this commit.
func (d *round) remove(b *pgx.Batch, rows []stagedRow, again []int) {
	gone := db.Columns{N: len(rows)}
	for i, r := range rows {
		if slices.Contains(again, i) {
			d.More = true
			continue
		}
		d.Rows++
		gone.Add(r.sub.ContextID, r.uid, r.number)
	}
	b.Queue(`DELETE FROM postern.outbox o
		USING ROWS FROM (unnest($1::int[]), unnest($2::text[]), unnest($3::bigint[])) n(context_id, uid, stage_id)
		WHERE (o.context_id, o.uid, o.stage_id) = (n.context_id, n.uid, n.stage_id)`, gone.Args()...)
}

// takeStaged locks queues and reads what is staged for those that it got, in the order of staging. Unordered
// rows have no queue that could be locked: they are locked themselves.
func (d *Drainer) takeStaged(ctx context.Context, t *db.Txn, names []nameKey, skip bool, only int64, left *[]nameKey) (
	rows []stagedRow, err error) {
	s := d.s
	var ids []int64
	asked := map[nameKey]int64{} // once, so that the queues below are those that were locked
	for _, n := range names {
		if !loose(n.name) {
			asked[n] = s.QueueID(n.context, n.name)
			ids = append(ids, asked[n])
		}
	}
	read := readStaged(&rows)
	locked := map[int64]*QueueRow{}
	b := &pgx.Batch{}
	lock := lockWaiting
	if skip {
		lock = lockSkipping
	} else {
		b.Queue(`SET LOCAL lock_timeout = '100ms'`)
	}
	lockQueues(b, lock, ids, s.names.eras(ids), locked)
	for _, n := range names {
		if loose(n.name) {
			where, args := d.looseWhere(n, only)
			where += ` ORDER BY o.context_id, o.stage_id LIMIT ` + strconv.Itoa(drainRows/len(names))
			b.Queue(stagedSelect+where+` FOR UPDATE SKIP LOCKED`, args...).Query(read)
		}
	}
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	got := db.Columns{N: len(names)}
	for _, n := range names {
		switch {
		case loose(n.name):
		case locked[asked[n]] != nil:
			got.Add(n.context, n.name)
		case skip:
			*left = append(*left, n)
		default: // reaped meanwhile
			s.forgetQueue(asked[n])
			return nil, &queueMissing{s, []*Submission{{ContextID: n.context, Queue: n.name}}}
		}
	}
	if got.Cols == nil {
		return rows, nil
	}
	b = &pgx.Batch{}
	b.Queue(`SELECT o.* FROM ROWS FROM (unnest($1::int[]), unnest($2::text[])) n(context_id, queue)
		CROSS JOIN LATERAL (`+stagedSelect+`WHERE (o.queue, o.context_id) = (n.queue, n.context_id) ORDER BY o.stage_id LIMIT $3) o`,
		got.Args(drainRows/len(names))...).Query(read)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b stagedRow) int { return cmp.Compare(a.number, b.number) })
	if twin.Planted("drained_backwards") {
		slices.Reverse(rows)
	}
	return rows, nil
}

// readStaged reads rows of stagedSelect.
func readStaged(into *[]stagedRow) func(pgx.Rows) error {
	return func(r pgx.Rows) (err error) {
		*into, err = pgx.AppendRows(*into, r, scanStaged)
		return err
	}
}

// turnDown ends what was staged and cannot be accepted: FAILED, at the end of its queue, where it is skipped
// as something cancelled is. The callback that it names is told, unless the row went past the checks of its table.
func (in *ingest) turnDown(ctx context.Context, t *db.Txn, sub *Submission, why *fault.Error) error {
	task := &Task{ID: outbox.ID{Seq: 1, Day: outbox.DayOf(in.e.now), Salt: outbox.SaltOf(in.e.now, "")}, ContextID: sub.ContextID, UID: sub.UID, Actor: sub.Actor,
		Type: sub.Type, Data: sub.Data, MaxRetries: sub.MaxRetries, NotBefore: sub.NotBefore, Tags: sub.Tags, CreatedAt: in.e.now}
	if sub.unread == nil {
		task.Callback = sub.Callback
	}
	if sub.Queue == "" {
		task.ID.Queue, in.ids = in.ids[0], in.ids[1:]
	} else {
		q := in.row(sub)
		if err := exact(ctx, t, []*QueueRow{q}); err != nil {
			return err
		}
		q.Tail, q.TailDay = q.Tail+1, max(task.ID.Day, q.TailDay)
		task.ID.Queue, task.ID.Seq, task.ID.Day = q.ID, q.Tail, q.TailDay
		if q.Phase == outbox.PhaseIdle {
			q.Head, q.HeadDay = q.Tail+1, q.TailDay
		} else {
			in.e.marks = append(in.e.marks, markRow{q.ID, q.Tail, "cancelled", why.Code, sub.Actor})
			q.Marks++
		}
		if !in.touched[q.ID] {
			in.touched[q.ID] = true
			in.e.saved = append(in.e.saved, q)
		}
	}
	message := why.Detail
	if existing, ok := why.Extra["existing"].(map[string]any); ok {
		task.UID = ""
		message += " (it names " + existing["id"].(string) + ")"
	} else if sub.UID != "" {
		in.hashes[taskKey{sub.ContextID, sub.UID}] = keyRow{task.ID, sub.Hash}
	}
	in.tasks = append(in.tasks, task)
	in.e.outcomes = append(in.e.outcomes, &outcomeRow{
		ID:       task.ID,
		Type:     task.Type,
		Callback: task.Callback,
		Context:  sub.ContextID,
		Was:      outbox.WAITING,
		State:    outbox.FAILED,
		Code:     why.Code,
		Error:    message,
	})
	return nil
}

// stagedRow is a staged submission and the number that orders it. uid and queue are those of the row, which differ from
// those of the submission where the row cannot be read.
type stagedRow struct {
	number     int64
	uid, queue string
	sub        *Submission
}

// stagedSelect reads staged rows as scanStaged wants them: values that the trigger of the table may not have judged are
// read as text of JSON.
const stagedSelect = `SELECT o.stage_id, o.context_id, o.uid, coalesce(o.queue, ''), o.type, o.data, o.max_retries,
	o.not_before, o.tags, to_jsonb(o.depends_on), o.callback, o.actor, o.by_admin FROM postern.outbox o `

// scanStaged reads one row. The trigger of the table has judged it, unless a superuser went past that: then a
// submission that nothing can be made of is marked as unread, without what cannot be kept of it, and ends FAILED. So
// no row stops a drain.
func scanStaged(r pgx.CollectableRow) (row stagedRow, err error) {
	var notBefore pgtype.Timestamptz
	var dependsOn, callback []byte
	var admin bool
	sub := &Submission{Poster: outbox.Anyone}
	err = r.Scan(&row.number, &sub.ContextID, &row.uid, &row.queue, &sub.Type, (*[]byte)(&sub.Data), &sub.MaxRetries,
		&notBefore, (*[]byte)(&sub.Tags), &dependsOn, &callback, &sub.Actor, &admin)
	if err != nil {
		return row, err
	}
	if admin {
		sub.Poster = outbox.ByAdmin
	}
	row.sub, sub.UID, sub.Queue = sub, row.uid, row.queue
	sub.readNames()
	sub.readTime(notBefore)
	sub.readLists(dependsOn, callback)
	if sub.Hash = []byte{0}; sub.unread == nil {
		sub.Hash = sub.Fingerprint()
	}
	return row, nil
}

// cannot marks a submission as unread, because of the field at pointer.
func (sub *Submission) cannot(pointer, want string) {
	if sub.unread == nil {
		sub.unread = fault.At(pointer, "%s was staged past the checks of postern.outbox: want %s", pointer[1:], want)
	}
}

// nameIs is what a name is made of.
const nameIs = "A-Z a-z 0-9 . _ : @ -, the first a letter or digit"

// wellNamed says whether the API takes a name: up to most characters, letters, digits and . _ : @ - alone.
func wellNamed(name string, most int) bool {
	if name == "" || len(name) > most {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '@' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// A name has at most so many characters, a uid as many.
const mostName, mostUID = 200, 255

func (sub *Submission) readNames() {
	if !wellNamed(sub.Type, mostName) {
		sub.cannot("/type", "1 to 200 of "+nameIs)
		sub.Type = fault.Clip(sub.Type)
	}
	if sub.Queue != "" && !wellNamed(sub.Queue, mostName) {
		sub.cannot("/queue", "1 to 200 of "+nameIs)
		sub.Queue = ""
	}
	if !wellNamed(sub.UID, mostUID) {
		sub.cannot("/uid", "1 to 255 of "+nameIs)
		sub.UID = ""
	}
	if err := outbox.Reserved(sub.Poster, "", sub.UID, sub.Queue); err != nil { // it ends under no name of a system
		sub.unread = cmp.Or(sub.unread, err)
		sub.UID, sub.Queue = "", ""
	}
	if sub.MaxRetries != nil && *sub.MaxRetries < 0 {
		sub.cannot("/max_retries", "a number >= 0")
		sub.MaxRetries = nil
	}
}

func (sub *Submission) readTime(at pgtype.Timestamptz) {
	switch {
	case !at.Valid:
	case at.InfinityModifier != pgtype.Finite, at.Time.UTC().Year() < 1970, at.Time.UTC().Year() > 9999:
		sub.cannot("/not_before", "a time from 1970 to 9999")
	default:
		sub.NotBefore = at.Time
	}
}

func (sub *Submission) readLists(dependsOn, callback []byte) {
	if !json.Valid(sub.Data) { // of jsonb, it is too deep for our reader
		sub.cannot("/data", "JSON of at most 64 levels")
		sub.Data = json.RawMessage("{}")
	}
	var tags map[string]string
	if len(sub.Tags) > 0 && (json.Unmarshal(sub.Tags, &tags) != nil || tags == nil) {
		sub.cannot("/tags", "an object of strings")
		sub.Tags = nil
	}
	if len(dependsOn) > 0 {
		err := json.Unmarshal(dependsOn, &sub.DependsOn)
		for _, name := range sub.DependsOn {
			if err != nil || !wellNamed(name, mostUID) {
				sub.cannot("/depends_on", "ids or uids")
			}
		}
		if err != nil || sub.unread != nil {
			sub.cannot("/depends_on", "a list of ids or uids")
			sub.DependsOn = nil
		}
	}
	if len(callback) > 0 {
		c := &outbox.Callback{}
		if err := json.Unmarshal(callback, c); err != nil || c.URL == "" {
			sub.cannot("/callback", "an object with a url")
		} else {
			sub.Callback = c
		}
	}
}
