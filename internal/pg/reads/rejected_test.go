package reads_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Lists, reports and events say by error_class which failures are rejections. A dependent of a rejected transaction
// fails without a class, and is no rejection.
func TestARejectionIsToldFromOtherFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	w.Post("a", "T", "rejected")
	w.Post("b", "T", "used up")
	w.Post("c", "T", "unknown")
	dependent := w.Sub("d", "T", "dependent")
	dependent.DependsOn = []string{"rejected"}
	w.Ingest(w.S, dependent)
	for _, l := range w.Claim(n, pgworld.Everything()) {
		a := map[string]outbox.Answer{
			"rejected": {Class: outbox.ClassRejected, Code: "DECLINED", Message: "declined"},
			"used up":  {Class: outbox.ClassRetry, Code: "20203", Message: "not sent"},
			"unknown":  {Class: outbox.ClassAmbiguous, Code: "timeout"},
		}[l.Task.UID]
		given := w.Answer(l, a)
		d := l.Dispatcher.Dispatcher
		given.Step = sequencer.Dispatched(l.Flight(0), a, d, 0.5)
		if l.Task.UID == "unknown" {
			d.Unknown = outbox.UnknownUnresolved
			given.Step = sequencer.Asked(l.Flight(0), outbox.Status{State: outbox.StatusUnsupported}, d, 0.5)
		}
		w.Settle(given)
	}
	for uid, want := range map[string]outbox.State{
		"rejected":  outbox.FAILED,
		"used up":   outbox.FAILED,
		"unknown":   outbox.UNRESOLVED,
		"dependent": outbox.FAILED,
	} {
		if got := w.State(w.UID(uid)); got != want {
			t.Fatalf("%s is %s, want %s", uid, got, want)
		}
	}
	rejected := reads.ListFilter{States: []string{"FAILED"}, Classes: []string{"rejected"}, Limit: 10}
	list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, rejected)
	w.Must(err)
	if len(list) != 1 || list[0].UID != "rejected" || list[0].Code != "DECLINED" || list[0].Error != "declined" {
		t.Errorf("the list of rejections: %+v", list)
	}
	_, err = w.S.Reads.RollUp(w.Ctx)
	w.Must(err)
	w.Same(w.Lines(`SELECT concat_ws(' ', error_class, error_code, n) FROM report.failures
			ORDER BY error_class, error_code`),
		" dependency_failed 1", "ambiguous outcome_unknown 1", "rejected DECLINED 1", "retry 20203 1")
	w.Same(w.Lines(`SELECT concat_ws(' ', type, done, failed, unresolved) FROM report.throughput_hourly`), "T 0 3 1")
	w.Same(w.Lines(`SELECT concat_ws(' ', uid, state, error_class) FROM postern.transactions
			WHERE error_class = 'rejected'`),
		"rejected FAILED rejected")
	w.Same(w.Lines(`SELECT class FROM postern.attempts('rejected')`), "rejected")
	w.Same(w.Lines(`SELECT postern.event_data(t.queue_id, t.seq, t.day, 'failed', now(), '{}') ->> 'error'
			FROM postern.task t WHERE t.uid = 'rejected'`),
		`{"code": "DECLINED", "class": "rejected", "message": "declined"}`)
	w.Same(w.Lines(`SELECT d.event FROM postern.delivery d JOIN postern.task t USING (queue_id, seq, day)
			WHERE t.uid = 'rejected' AND d.subscription_id <= 0`),
		"on-failure")
}
