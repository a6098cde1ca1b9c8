package domains

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
)

// Word is what the row of an activity keeps of what the core says.
type Word struct {
	UID, State, Nonce, Hash string
	Ended                   bool
	refused                 bool // the core was not given it: a step takes that unless it was posted meanwhile
}

// activity is a public transaction that is to be posted, or called back.
type activity struct {
	domain, context int32
	n               int64
	id, workUID     string
	uid             string
	dependsOn       []string
	actor           string
	prepared        []byte
	posted          bool
	recalled        bool // also one that has ended while it was held back
	heldBack        bool
}

// A domain that waits to know what was lost, or is paused, posts nothing.
const activitiesSQL = `SELECT a.domain_id, d.context_id, a.n, a.intent_id::text, a.work_uid, a.uid, a.depends_on,
		coalesce(i.actor, ''), p.data, a.posted_at IS NOT NULL, a.recalled OR a.ended_at IS NOT NULL, a.held_back
	FROM postern.coord_activity a
	JOIN postern.domain d ON d.domain_id = a.domain_id
	JOIN postern.coord_payload p ON (p.domain_id, p.intent_id, p.generation, p.part, p.name, p.party)
		= (a.domain_id, a.intent_id, a.generation, 'prepared', '', '')
	LEFT JOIN postern.coord_intent i ON (i.domain_id, i.intent_id) = (a.domain_id, a.intent_id)
	WHERE (a.ended_at IS NULL OR a.recalled OR a.held_back)
		AND CASE WHEN a.posted_at IS NULL THEN a.ended_at IS NULL ELSE a.recalled OR a.held_back END
		AND ($1 = 0 OR a.domain_id = $1)
		AND d.removed_at IS NULL AND NOT d.paused AND d.context_id <> ALL ($2)
		AND (a.recalled OR NOT EXISTS (SELECT FROM postern.coord_state s WHERE s.domain_id = a.domain_id AND s.still))
	ORDER BY a.error <> '', a.n -- what the core has refused takes no place from others, and nothing in quarantine does
	LIMIT 100`

// PostActivities posts to the core the public transactions of a domain, or of all (0), that steps have dispatched, in
// the order of the steps: so one is known to the core before those that depend on it. It returns what the core has
// refused for good, by domain. Those of a domain that is still are held back first.
func (s *Store) PostActivities(ctx context.Context, id int32) (map[int32][]Event, error) {
	held := s.holdBack(ctx, nil, false)
	rows, err := s.Db(ctx).Query(ctx, activitiesSQL, id, s.QuarantineView().Contexts())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*activity, error) {
		a := &activity{}
		return a, row.Scan(&a.domain, &a.context, &a.n, &a.id, &a.workUID, &a.uid, &a.dependsOn, &a.actor,
			&a.prepared, &a.posted, &a.recalled, &a.heldBack)
	})
	if err != nil {
		return nil, db.Known(err)
	}
	slices.SortFunc(list, func(x, y *activity) int { return cmp.Compare(x.n, y.n) })
	refused, failed := map[int32][]Event{}, map[int32]error{} // what follows in a domain may depend on one that failed
	for _, a := range list {
		if s.Quarantined(a.context, "") || failed[a.domain] != nil {
			continue
		}
		word, err := s.postActivity(ctx, a)
		if err != nil {
			failed[a.domain] = err
			continue
		}
		if word != nil {
			refused[a.domain] = append(refused[a.domain], Event{Event: coord.Event{Core: word},
				Word: &Word{UID: a.workUID, State: word.State, Ended: true, refused: true}})
		}
	}
	return refused, errors.Join(held, errors.Join(slices.Collect(maps.Values(failed))...))
}

// postActivity posts one public transaction, or takes it back. A word is what the core says at once.
func (s *Store) postActivity(ctx context.Context, a *activity) (*coord.CoreWord, error) {
	switch {
	case a.posted && a.recalled:
		return nil, s.recall(ctx, a)
	case a.posted:
		return nil, s.letGo(ctx, a)
	case a.recalled: // posted now, it might land twice: in the life that is lost it may have been sent
		return &coord.CoreWord{ID: a.id, UID: a.workUID, State: coord.CoreUnknown,
			Reason: "this store lost rows before it was posted: whether it was sent is unknown"}, nil
	}
	var p coord.PublicTransaction
	if err := json.Unmarshal(a.prepared, &p); err != nil {
		return nil, err
	}
	hash := sha256.Sum256(append([]byte("domain\x00"+p.Type+"\x00"), p.Data...))
	sub := &pg.Submission{Held: true, ContextID: a.context, UID: a.uid, Hash: hash[:], Actor: a.actor,
		Poster: outbox.ByAdmin,
		Type:   p.Type, Data: p.Data, DependsOn: a.dependsOn}
	return s.put(ctx, a, sub)
}

// toPostSQL locks an activity that is to be posted now.
const toPostSQL = `SELECT a.n
	FROM postern.coord_activity a
	WHERE a.domain_id = $1 AND a.n = $2 AND a.ended_at IS NULL AND a.posted_at IS NULL AND NOT a.recalled
		AND NOT EXISTS (SELECT FROM postern.coord_state s WHERE s.domain_id = a.domain_id AND s.still)
	FOR UPDATE`

// put posts one, and notes that in the same commit.
//
// Why posted_at is the truth, also in a store that went back in time: there is no commit with one and without the
// other. Why two processes post it once, and a refusal stands beside no post: both lock the row first, and the second
// one reads it as the first has left it. Why none is posted behind its end: a step that ends it writes this row, and
// this statement waits for that. Queues are locked behind the row; a lock of a queue waits for none of a row here.
func (s *Store) put(ctx context.Context, a *activity, sub *pg.Submission) (word *coord.CoreWord, err error) {
	open := false
	lock := func(_ *db.Txn, b *pgx.Batch) {
		b.Queue(toPostSQL, a.domain, a.n).Query(func(rows pgx.Rows) error { open = rows.Next(); return nil })
	}
	all := func(ctx context.Context) (err error) {
		if word = nil; open {
			word, err = s.putOpen(ctx, a, sub)
		}
		return err
	}
	err = db.Again(func() error {
		err := s.DB.Together(ctx, lock, all)
		if strings.HasPrefix(db.SQLState(err), "22") { // a value that the database cannot store
			word, err = reverted(a, "data holds a value that the database cannot store"), nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.RingHere()
	return word, nil
}

// putOpen posts one whose row is locked. A refusal writes nothing but its error.
func (s *Store) putOpen(ctx context.Context, a *activity, sub *pg.Submission) (*coord.CoreWord, error) {
	out, err := s.Ingest(ctx, []*pg.Submission{sub}, false)
	if err == nil {
		err = out[0].Err
	}
	switch f := fault.As(err); {
	case err == nil:
		_, err = s.Exec(ctx, `UPDATE postern.coord_activity
			SET posted_at = coalesce($3::timestamptz, clock_timestamp()), error = ''
			WHERE domain_id = $1 AND n = $2 AND ended_at IS NULL`, a.domain, a.n, s.Clock())
		return nil, err
	case f.Kind == fault.Retry, f.Kind == fault.Internal:
		return nil, err
	case about(f, "/depends_on"):
		return s.behind(ctx, a, f)
	case f.Kind == fault.Invalid && f.Code != "unknown_type" && !about(f, "/type"):
		return reverted(a, f.Detail), nil
	default: // it may be posted once somebody has put the dispatcher, or resumed it
		_, err = s.Exec(ctx, `UPDATE postern.coord_activity SET error = $3
			WHERE domain_id = $1 AND n = $2 AND ended_at IS NULL`, a.domain, a.n, f.Detail)
		return nil, err
	}
}

// reverted is the word of one that the core does not take.
func reverted(a *activity, why string) *coord.CoreWord {
	return &coord.CoreWord{ID: a.id, UID: a.workUID, State: coord.CoreReverted, Retry: true,
		Reason: "the public transaction was refused: " + why}
}

// about says whether a refusal is about a field.
func about(f *fault.Error, field string) bool {
	return slices.ContainsFunc(f.Fields, func(x fault.Field) bool { return strings.HasPrefix(x.Pointer, field) })
}

// behind keeps one that depends on what the core does not have: it is posted again while one of those has not ended, as
// one that is refused itself, or that another process is just posting. Behind their ends nothing of it went out, and it
// costs no revert.
//
// Why it is not given up too early: a producer's row was inserted before its own, and it ends in the commit of a step.
// Where that commits meanwhile, this finds the producer open, and the next post finds it ended.
func (s *Store) behind(ctx context.Context, a *activity, f *fault.Error) (*coord.CoreWord, error) {
	tag, err := s.Exec(ctx, `UPDATE postern.coord_activity a SET error = $3
		WHERE a.domain_id = $1 AND a.n = $2 AND a.ended_at IS NULL AND EXISTS (SELECT FROM postern.coord_activity p
			WHERE p.domain_id = a.domain_id AND p.uid = ANY (a.depends_on) AND p.ended_at IS NULL)`, a.domain,
		a.n, f.Detail)
	if err != nil || tag.RowsAffected() > 0 {
		return nil, err
	}
	return &coord.CoreWord{ID: a.id, UID: a.workUID, State: coord.CoreUndone,
		Reason: "the public transaction that it depends on was not done"}, nil
}

// recall takes back a public transaction that the core has not sent. A process that dies before it has noted that does
// it again: to cancel twice changes nothing.
func (s *Store) recall(ctx context.Context, a *activity) error {
	id, err := s.ByUID(ctx, a.context, a.uid)
	if err == nil {
		_, err = s.Store.Cancel(ctx, db.By{Context: a.context, Via: "domains", Reason: "its domain has lost rows"}, id)
	}
	if kind := fault.KindOf(err); err != nil && kind != fault.Conflict && kind != fault.NotFound {
		return err
	}
	if a.heldBack { // one that may have gone out goes on
		if err := s.letGo(ctx, a); err != nil {
			return err
		}
	}
	_, err = s.Exec(ctx, `UPDATE postern.coord_activity SET recalled = false WHERE domain_id = $1 AND n = $2`,
		a.domain, a.n)
	return err
}

// wordsSQL reads what became of public transactions whose last word is another one. Of one that retention has dropped
// nothing is known. A domain that is still, or paused, takes no word before it goes on.
const wordsSQL = `SELECT a.domain_id, d.context_id, a.intent_id::text, a.work_uid, a.state, a.nonce, a.hash,
		i.key IS NOT NULL,
		coalesce(o.state, ''), coalesce(o.error_class, ''), coalesce(o.error_code, ''),
		coalesce(nullif(o.error, ''), nullif(o.error_code, ''), nullif(o.error_class, ''), lower(o.state), ''),
		coalesce(o.nonce, t.nonce, ''), coalesce(o.hash, t.hash, ''),
		o.hash IS NOT NULL OR EXISTS (SELECT FROM postern.attempt x
			WHERE (x.queue_id, x.seq, x.day) = (i.queue_id, i.seq, i.day) AND x.hash IS NOT NULL)
	FROM postern.coord_activity a
	JOIN postern.domain d ON d.domain_id = a.domain_id
	LEFT JOIN LATERAL (SELECT x.key, x.queue_id, x.seq, x.day FROM postern.idempotency x
		WHERE (x.context_id, x.key) = (d.context_id, a.uid) OFFSET 0) i ON true
	LEFT JOIN LATERAL (SELECT x.* FROM postern.outcome x
		WHERE (x.queue_id, x.seq, x.day) = (i.queue_id, i.seq, i.day) OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT x.nonce, x.hash FROM postern.attempt x
		WHERE (x.queue_id, x.seq, x.day) = (i.queue_id, i.seq, i.day) AND x.step = 'dispatch'
			AND (x.hash IS NOT NULL OR x.nonce IS NOT NULL)
		ORDER BY x.attempt DESC, x.fence DESC
		LIMIT 1) t ON true
	WHERE a.ended_at IS NULL AND a.posted_at IS NOT NULL AND a.error = '' AND d.context_id <> ALL ($1) AND NOT d.paused
		AND (a.state <> 'unknown' OR o.state IS NULL AND i.key IS NOT NULL)
		AND NOT EXISTS (SELECT FROM postern.coord_state s WHERE s.domain_id = a.domain_id AND s.still)
		AND (i.key IS NULL OR o.state IS NOT NULL OR coalesce(t.hash, '') NOT IN ('', a.hash)
			OR coalesce(t.nonce, '') NOT IN ('', a.nonce))
	ORDER BY a.n
	LIMIT 500`

// Words reads what the core says of public transactions, by domain.
func (s *Store) Words(ctx context.Context) (map[int32][]Event, error) {
	rows, err := s.Looks.Query(ctx, wordsSQL, s.QuarantineView().Contexts())
	if err != nil {
		return nil, db.Known(err)
	}
	words := map[int32][]Event{}
	var domain, contextID int32
	var w coreRow
	_, err = pgx.ForEachRow(rows, []any{&domain, &contextID, &w.id, &w.uid, &w.said, &w.saidNonce, &w.saidHash,
		&w.known, &w.state, &w.class,
		&w.code, &w.text, &w.nonce, &w.hash, &w.sent}, func() error {
		if !s.Quarantined(contextID, "") {
			words[domain] = append(words[domain], w.events()...)
		}
		return nil
	})
	return words, db.Known(err)
}

// coreRow is what the rows of the core have of a public transaction, and what its activity had heard before.
type coreRow struct {
	id, uid, said, saidNonce, saidHash string
	known                              bool
	state, class, code, text           string
	nonce, hash                        string
	sent                               bool // any attempt of it has a hash, not the newest alone
}

func (w *coreRow) events() (list []Event) {
	say := func(word coord.CoreWord, ended bool) {
		word.ID, word.UID, word.Hash = w.id, w.uid, w.hash
		word.Nonce, _ = strconv.ParseInt(w.nonce, 10, 64)
		list = append(list, Event{Event: coord.Event{Core: &word},
			Word: &Word{UID: w.uid, State: word.State, Nonce: w.nonce, Hash: w.hash, Ended: ended}})
	}
	if w.nonce != "" && w.nonce != w.saidNonce {
		say(coord.CoreWord{State: coord.CoreNonce}, false)
		list[0].Word.Hash = w.saidHash // a step may take this word without the next, which has the new one
	}
	if w.hash != "" && w.hash != w.saidHash {
		say(coord.CoreWord{State: coord.CoreSubmitted}, false)
	}
	switch {
	case !w.known:
		say(coord.CoreWord{State: coord.CoreUnknown, Reason: "retention has dropped its public transaction"}, false)
	case w.state == "DONE" && w.id[len(w.id)-1] < '2' && twin.Planted("done_is_reverted"):
		say(coord.CoreWord{State: coord.CoreReverted, Reason: w.text, Retry: true}, true)
	case w.state == "DONE":
		say(coord.CoreWord{State: coord.CoreSuccess}, true)
	case w.state == "CANCELLED", w.code == pg.CodeDependency:
		say(coord.CoreWord{State: coord.CoreUndone, Reason: w.text}, true)
	case w.state == "FAILED" && w.code == sequencer.CodeFailed:
		say(coord.CoreWord{State: coord.CoreReverted, Reason: w.text, Retry: w.class != string(outbox.ClassRejected)},
			true)
	case w.state == "FAILED" && w.class == string(outbox.ClassRejected) && !w.sent:
		say(coord.CoreWord{State: coord.CoreReverted, Reason: w.text}, true)
	case w.state != "": // it may land: a timeout, or an operator who gave it up
		say(coord.CoreWord{State: coord.CoreUnknown, Reason: w.text}, false)
	}
	return list
}
