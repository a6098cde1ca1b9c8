package messages_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// sails is a world in which jobs go to the peer far.
type sails struct {
	*world
	node pg.Node
	f    messages.Following
}

func newSails(t *testing.T) *sails {
	t.Helper()
	w := newWorld(t)
	return &sails{w, w.Node("n"), w.far()}
}

// sent posts a flow with one job for far, offers it and has far store its message; it returns the job.
func (s *sails) sent() *flows.Job {
	s.T.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	s.Must(err)
	envelope, err := message.Write(message.Signed{CreatedAt: s.Now, Type: message.Job,
		Audience: message.Audience{Installation: "i", Context: "c", Peer: "near"},
		Jobs:     json.RawMessage(`[{"script": "1", "script_type": "python"}]`)}, key)
	s.Must(err)
	ref := int64(1)
	f, err := s.S.Flows.PostFlow(s.Ctx, s.By, flows.FlowSpec{Start: true, Jobs: []flow.Spec{{Ref: &ref, Script: "1",
		ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour, Peer: "far", Envelope: envelope}}})
	s.Must(err)
	for _, l := range s.Claim(s.node, pgworld.Everything()) {
		a := s.S.Flows.Offer(s.Ctx, l, l.Task.Token(l.Attempt))
		if again := s.S.Flows.Offer(s.Ctx, l, l.Task.Token(l.Attempt)); again.Result.Hash != a.Result.Hash {
			s.T.Errorf("the same token is sent as %q and %q", a.Result.Hash, again.Result.Hash)
		}
		s.Settle(s.Answer(l, a))
	}
	list, err := s.S.Flows.JobsOf(s.Ctx, s.ID, f.ID)
	s.Must(err)
	s.route()
	s.Must(s.S.Messages.AtPeer(s.Ctx, *list[0].Carried, nil))
	return list[0]
}

// word is what far says of a job.
func word(j *flows.Job, steps int, status string, started bool) messages.Word {
	w := messages.Word{ID: *j.Carried, Steps: steps, Status: status, Started: started}
	if status == "processed" {
		w.Result = &messages.Told{ID: uuid.New(), Format: "text",
			Result: json.RawMessage(`{"jobs": [{"status": "finished", "result": {"k": "v"}}]}`)}
	}
	return w
}

// hears brings a word to near, and the ends that follow from it.
func (s *sails) hears(w messages.Word) {
	s.T.Helper()
	s.Must(s.S.Messages.Hear(s.Ctx, s.f, w))
}

// at is where a job, its try and its message are.
func (s *sails) at(j *flows.Job) string {
	s.T.Helper()
	now, err := s.S.Flows.Job(s.Ctx, s.ID, j.ID)
	s.Must(err)
	var try, message int
	var state string
	s.Must(s.S.Pool().QueryRow(s.Ctx, `SELECT (SELECT count(*) FROM postern.job_try WHERE job_id = $1),
		(SELECT count(*) FROM postern.message WHERE carries_job),
		(SELECT state FROM postern.job_try WHERE try_id = $2)`,
		j.ID, *j.Carried).Scan(&try, &message, &state))
	return fmt.Sprint(now.Status, " ", state, " ", s.stands(*j.Carried), " ", try, " ", message)
}

// A word that a runner there has it starts a job, and one with its result ends its try: each once, however often it is
// heard.
func TestATryEndsAsItsPeerSays(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	for _, c := range []struct {
		w    messages.Word
		want string
	}{
		{word(j, 3, "acknowledged", false), "dispatched Sent acknowledged 1 1"},
		{word(j, 5, "acknowledged", true), "started Sent acknowledged 1 1"},
		{word(j, 9, "processed", true), "started Finished processed 1 1"},
		{word(j, 10, "error", true), "started Finished processed 1 1"},
	} {
		s.hears(c.w)
		s.hears(c.w)
		if got := s.at(j); got != c.want {
			t.Errorf("after %+v: %s, want %s", c.w, got, c.want)
		}
	}
}

// The end of a flow and the result of its job are serial by the row of the message: the second finds the try ended, and
// changes nothing.
func TestARecallBesideAResult(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	other := s.Another(4)
	j := s.sent()
	recall := func(f *flows.Store) error { return f.Away.Recall(s.Ctx, []uuid.UUID{*j.Carried}) }
	second, waited := s.Beside(func() error { return s.S.Messages.Hear(s.Ctx, s.f, word(j, 9, "processed", true)) },
		func() string { return said(recall(other.Flows)) })
	if got := s.at(j); second != "ok" || !waited || got != "started Finished processed 1 1" {
		t.Errorf("a recall behind a result says %q, and waited: %v; %s", second, waited, got)
	}
	j = s.sent()
	second, waited = s.Beside(func() error { return recall(s.S.Flows) }, func() string {
		return said(other.Messages.Hear(s.Ctx, s.f, word(j, 9, "processed", true)))
	})
	if got := s.at(j); second != "ok" || !waited || got != "dispatched Failed error stopped 1 2" {
		t.Errorf("a result behind a recall says %q, and waited: %v; %s", second, waited, got)
	}
	if stop, abort, err := s.S.Messages.ToStop(s.Ctx, s.f); err != nil || len(stop) != 1 || len(abort) != 1 {
		t.Errorf("far is to stop %v, and of these the jobs of %v: %v", stop, abort, err)
	}
}

// Jobs of flows that are cancelled are recalled, one that has ended and one that is to stop, behind very many whose
// transactions stay out while their context is in quarantine.
func TestJobsAreRecalledBehindThoseThatCannotBe(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	waits, runs := s.sent(), s.sent()
	s.hears(word(runs, 5, "acknowledged", true))
	left := func(of *flows.Job, ended, stop *time.Time, status string) {
		s.Exec(`INSERT INTO postern.job
			SELECT (jsonb_populate_record(j, jsonb_build_object('job_id', gen_random_uuid(), 'context_id', $2::int,
				'flow_id', NULL, 'ref', NULL, 'peer', NULL, 'tx_id', NULL, 'seq', n, 'status', $3::text,
				'ended_at', $4::timestamptz, 'stop_at', $5::timestamptz))).*
			FROM postern.job j, generate_series(1000, 2999) n
			WHERE j.job_id = $1`, of.ID, s.shop.Context, status, ended, stop)
	}
	left(waits, &s.Now, nil, "error")
	left(runs, nil, &s.Now, "started")
	s.Must(s.S.EnterQuarantine(s.Ctx, s.By, pg.Quarantine{Context: "shop", Reason: "test"}))
	s.Later(time.Minute)
	for _, j := range []*flows.Job{waits, runs} {
		_, err := s.S.Flows.CancelFlow(s.Ctx, s.By, *j.Flow)
		s.Must(err)
	}
	for range 2 {
		s.Must(s.S.Flows.TakeBack(s.Ctx))
	}
	s.Same([]string{s.at(waits), s.at(runs)},
		"error Failed error stopped 1 2", "started Failed error stopped 1 2")
}

// A job that is away for too long ends with the name of its deadline, and its result is late.
func TestAJobThatIsAwayHasADeadline(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	s.hears(word(j, 3, "acknowledged", true))
	s.Later(25 * time.Hour)
	n, err := s.S.Messages.Expire(s.Ctx)
	s.Must(err)
	s.hears(word(j, 9, "processed", true))
	if got := s.at(j); n != 1 || got != "started Failed error timeout_result 1 1" ||
		fmt.Sprint(s.late(*j.Carried)) != "[ResultReceived]" {
		t.Errorf("%d ended: %s, late %v", n, got, s.late(*j.Carried))
	}
}

// Output comes in pieces, each once, and none of a peer that counts wrongly.
func TestOutputOfAPeerIsKeptOnce(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	w := word(j, 0, "acknowledged", true)
	for _, pieces := range [][]messages.Piece{
		{{N: 1, Stream: "stdout", Text: "a"}, {N: 2, Stream: "stderr", Text: "b\x00"}},
		{{N: 2, Stream: "stderr", Text: "b"}, {N: 3, Stream: "?", Text: "c"}, {Job: -1, N: 9, Text: "d"}},
	} {
		w.Lines = pieces
		s.hears(w)
		s.hears(w)
	}
	got := s.Lines(`SELECT n || stream || text FROM postern.try_log ORDER BY n`)
	s.Same(got, "1stdouta", "2stderrb", "3runnerc")
	list, err := s.S.Messages.Logs(s.Ctx, s.ID, *j.Carried, 10)
	if err != nil || len(list) != 3 {
		t.Errorf("%v %v", list, err)
	}
	if open, err := s.S.Messages.OpenAt(s.Ctx, s.f, uuid.UUID{}); err != nil || fmt.Sprint(open[0].Lines) != "[3]" {
		t.Errorf("%v %v", open, err)
	}
}

// What an actor has signed is one message at its peer: one that carries a job of a flow is no second one beside it.
func TestAnEnvelopeThatCarriesAJobIsNoOtherMessage(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	var envelope []byte
	s.Scan(`SELECT envelope FROM postern.message WHERE message_id = '`+j.Carried.String()+`'`, &envelope)
	_, err := s.S.Messages.Post(s.Ctx, s.By, s.chat("", func(p *messages.Posted) {
		p.Target, p.To, p.Type, p.Envelope = 0, message.To{Peer: "far", Context: "c"}, message.Job, envelope
	}))
	if fault.KindOf(err) != fault.Conflict {
		t.Errorf("a message with the envelope of a job: %v", err)
	}
}

// wrote is a word that the one job of a message has written lines, from a number on.
func wrote(id uuid.UUID, steps, from int, lines ...string) messages.Word {
	w := messages.Word{ID: id, Steps: steps, Status: "acknowledged", Started: true}
	for i, text := range lines {
		w.Lines = append(w.Lines, messages.Piece{N: from + i, Stream: "stdout", Text: text})
	}
	return w
}

// A job that a restored peer executes again writes its output once more, from the beginning: all of it stands behind
// that of the first time, and a word of the first time that comes late adds nothing.
func TestTheOutputOfASecondRunAtAPeerIsWhole(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	chat := s.jobs(1)
	chat.Target, chat.To = 0, message.To{Peer: "far", Context: "c"}
	ofJobs := s.post(chat)[0]
	s.route()
	s.Must(s.S.Messages.AtPeer(s.Ctx, ofJobs, nil))
	for _, id := range []uuid.UUID{*j.Carried, ofJobs} {
		s.hears(wrote(id, 5, 1, "a", "b", "c"))
		s.hears(wrote(id, 5, 1, "a", "b", "c"))
		s.Must(s.S.Messages.Lost(s.Ctx, s.f, id))
		s.hears(wrote(id, 6, 4, "late"))
		s.Must(s.S.Messages.AtPeer(s.Ctx, id, nil))
		asked, err := s.S.Messages.OpenAt(s.Ctx, s.f, uuid.UUID{})
		s.Must(err)
		for _, a := range asked {
			if a.ID == id && (len(a.Lines) > 1 || len(a.Lines) == 1 && a.Lines[0] != 0) {
				t.Errorf("the peer is asked for what comes behind lines %v", a.Lines)
			}
		}
		s.Later(time.Second)
		s.hears(wrote(id, 4, 1, "A", "B"))
		s.hears(wrote(id, 6, 3, "C", "D"))
		lines, err := s.S.Messages.Logs(s.Ctx, s.ID, id, 100)
		s.Must(err)
		var text string
		for _, l := range lines {
			text += l.Text
		}
		if text != "abcABCD" {
			t.Errorf("its output is %q", text)
		}
	}
	logged, err := s.S.Flows.LastLogs(s.Ctx, s.ID, j.ID, 100)
	s.Must(err)
	if n := len(logged); n != 7 || logged[0].Text != "a" || logged[6].Text != "D" {
		t.Errorf("%d lines of the job: %+v", n, logged)
	}
}
