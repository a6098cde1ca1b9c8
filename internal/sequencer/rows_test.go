package sequencer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/sequencer"
)

// row is one line of S2.5, as "Txn / queue" there; of several guards in a cell the one that holds.
type row struct {
	n                     int
	from, event, when, to string
	txn, queue            string // effects
}

// rows is S2.5 written out. "*" in a cell of the seed is written as one line each.
var rows = []row{
	{1, " / ", "Posted", "type_known_and_queue_open", "WAITING / FREE", "take_position", ""},
	{2, "WAITING / FREE", "SenderBound", "head_may_go", "DISPATCHING / BLOCKED", "", "call_worker"},
	{3, "DISPATCHING / BLOCKED", "Accepted", "", "REVISION / INCLUSION", "keep_attempt keep_hash", ""},
	{4, "DISPATCHING / BLOCKED", "Completed", "", "DONE / FREE", "keep_attempt on_success", "release_sender"},
	{5, "DISPATCHING / BLOCKED", "WorkerLost", "", "WAITING / FREE", "keep_attempt", "leave_alone stand_in_lane"},
	{6, "DISPATCHING / BLOCKED", "Rejected", "", "FAILED / FREE", "keep_attempt on_failure", "release_sender blame_sender"},
	{7, "DISPATCHING / BLOCKED", "DispatchError", "retries_left", "RETRY / RETRY", "keep_attempt count_retry", "blame_sender"},
	{7, "DISPATCHING / BLOCKED", "DispatchError", "", "FAILED / FREE", "keep_attempt on_failure", "release_sender blame_sender"},
	{8, "DISPATCHING / BLOCKED", "DispatchTimeout", "", "DISPATCHING / BLOCKED", "", "ask_status"},
	{8, "DISPATCHING / BLOCKED", "NodeLost", "", "DISPATCHING / BLOCKED", "", "ask_status"},
	{8, "DISPATCHING / BLOCKED", "Restarted", "", "DISPATCHING / BLOCKED", "", "ask_status"},
	{8, "DISPATCHING / BLOCKED", "StatusUnreachable", "", "DISPATCHING / BLOCKED", "", "ask_later"},
	{8, "DISPATCHING / BLOCKED", "StatusUnknown", "", "DISPATCHING / BLOCKED", "", "call_worker"},
	{8, "DISPATCHING / BLOCKED", "Unreadable", "", "DISPATCHING / BLOCKED", "count_retry", "call_worker"},
	{8, "DISPATCHING / BLOCKED", "Unresolvable", "unknown_is_held", "DISPATCHING / BLOCKED", "", "hold blame_sender"},
	{8, "DISPATCHING / BLOCKED", "Unresolvable", "", "UNRESOLVED / FREE", "keep_attempt", "release_sender blame_sender"},
	{0, "DISPATCHING / BLOCKED", "FoundDone", "", "DONE / FREE", "on_success", "release_sender"}, // S2.10, an operator's word
	{0, "DISPATCHING / BLOCKED", "FoundNotDone", "", "WAITING / FREE", "", "stand_in_lane"},      // likewise
	{9, "REVISION / INCLUSION", "InclusionStarted", "", "REVISION / WAITING_INCLUSION", "", "poll"},
	{10, "REVISION / WAITING_INCLUSION", "InclusionStarted", "", "REVISION / WAITING_INCLUSION", "", "poll"},
	{10, "REVISION / WAITING_INCLUSION", "StatusPending", "", "REVISION / WAITING_INCLUSION", "", "poll"},
	{10, "REVISION / WAITING_INCLUSION", "StatusUnreachable", "", "REVISION / WAITING_INCLUSION", "", "poll"},
	{11, "REVISION / WAITING_INCLUSION", "Included", "", "DONE / FREE", "keep_attempt on_success", "release_sender"},
	{12, "REVISION / WAITING_INCLUSION", "InclusionFailed", "failed_may_retry", "RETRY / RETRY", "keep_attempt count_retry", "blame_sender"},
	{12, "REVISION / WAITING_INCLUSION", "InclusionFailed", "", "FAILED / FREE", "keep_attempt on_failure", "release_sender blame_sender"},
	{12, "REVISION / WAITING_INCLUSION", "InclusionTimeout", "held_for_operator", "REVISION / WAITING_INCLUSION", "", "poll"},
	{12, "REVISION / WAITING_INCLUSION", "InclusionTimeout", "retries_left", "RETRY / RETRY", "keep_attempt count_retry", "blame_sender"},
	{12, "REVISION / WAITING_INCLUSION", "InclusionTimeout", "", "FAILED / FREE", "keep_attempt on_failure", "release_sender blame_sender"},
	{13, "REVISION / INCLUSION", "NodeLost", "", "REVISION / INCLUSION", "", ""},
	{13, "REVISION / INCLUSION", "Restarted", "", "REVISION / INCLUSION", "", ""},
	{13, "REVISION / WAITING_INCLUSION", "NodeLost", "", "REVISION / WAITING_INCLUSION", "", ""},
	{13, "REVISION / WAITING_INCLUSION", "Restarted", "", "REVISION / WAITING_INCLUSION", "", ""},
	{13, "RETRY / RETRY", "NodeLost", "", "RETRY / RETRY", "", ""},
	{13, "RETRY / RETRY", "Restarted", "", "RETRY / RETRY", "", ""},
	{13, "RETRY / DELAY", "NodeLost", "", "RETRY / DELAY", "", ""},
	{13, "RETRY / DELAY", "Restarted", "", "RETRY / DELAY", "", ""},
	{14, "RETRY / RETRY", "RetryStarted", "retries_within_max", "RETRY / DELAY", "", "wait_for_retry"},
	{14, "RETRY / RETRY", "RetryStarted", "", "FAILED / FREE", "on_failure", "release_sender"},
	{14, "RETRY / DELAY", "DelayElapsed", "limit_lowered", "FAILED / FREE", "on_failure", "release_sender"},
	{15, "RETRY / DELAY", "RetryStarted", "in_delay", "RETRY / DELAY", "", ""},
	{16, "RETRY / DELAY", "DelayElapsed", "earlier_included", "DONE / FREE", "on_success", "release_sender"},
	{16, "RETRY / DELAY", "DelayElapsed", "earlier_open", "RETRY / DELAY", "", "wait_to_ask"},
	{16, "RETRY / DELAY", "DelayElapsed", "", "DISPATCHING / BLOCKED", "next_attempt", "call_worker"},
	{17, "RETRY / DELAY", "DelayElapsed", "sender_given_back", "WAITING / FREE", "next_attempt", "stand_in_lane"},
	{18, "WAITING / FREE", "Cancel", "", "CANCELLED / FREE", "mark_cancelled", ""},
	{0, "WAITING / FREE", "DependencyFailed", "", "FAILED / FREE", "on_failure", ""}, // S2.15, which has no row
	{19, "RETRY / RETRY", "Cancel", "earlier_included", "DONE / FREE", "on_success", "release_sender"},
	{19, "RETRY / RETRY", "Cancel", "earlier_may_land", "RETRY / RETRY", "", "wait_to_ask"},
	{19, "RETRY / RETRY", "Cancel", "", "CANCELLED / FREE", "", "release_sender"},
	{19, "RETRY / DELAY", "Cancel", "earlier_included", "DONE / FREE", "on_success", "release_sender"},
	{19, "RETRY / DELAY", "Cancel", "earlier_may_land", "RETRY / DELAY", "", "wait_to_ask"},
	{19, "RETRY / DELAY", "Cancel", "", "CANCELLED / FREE", "", "release_sender"},
	{20, "DISPATCHING / BLOCKED", "Abandoned", "", "UNRESOLVED / FREE", "", "release_sender block_sender"},
	{20, "REVISION / INCLUSION", "Abandoned", "", "UNRESOLVED / FREE", "", "release_sender block_sender"},
	{20, "REVISION / WAITING_INCLUSION", "Abandoned", "", "UNRESOLVED / FREE", "", "release_sender block_sender"},
	{20, "RETRY / RETRY", "Abandoned", "", "UNRESOLVED / FREE", "", "release_sender block_sender"},
	{20, "RETRY / DELAY", "Abandoned", "", "UNRESOLVED / FREE", "", "release_sender block_sender"},
	{0, "WAITING / FREE", "Refused", "", "FAILED / FREE", "mark_cancelled", ""}, // ours
}

func TestEveryRowOfS25IsInBothTablesAndNothingElse(t *testing.T) {
	used := map[string]bool{}
	next := func(table machine.Table, r row, half int, do string) {
		from, to := strings.Split(r.from, " / ")[half], strings.Split(r.to, " / ")[half]
		got, err := table.Next(from, r.event, func(name string) bool { return name == r.when })
		if err != nil || got.To != to || !slices.Equal(got.Do, strings.Fields(do)) {
			t.Errorf("row %d: %s in %s when %q goes to %q doing %v, %v; want %q doing %q",
				r.n, r.event, r.from, r.when, got.To, got.Do, err, to, do)
		}
		used[key(table, got)] = true
	}
	for _, r := range rows {
		next(sequencer.Transaction, r, 0, r.txn)
		next(sequencer.Queue, r, 1, r.queue)
	}
	for _, table := range sequencer.Tables() {
		for _, r := range table.Rules {
			if !used[key(table, r)] {
				t.Errorf("%s: the rule for %s on %s when %q is in no row of S2.5", table.Name, r.From, r.On, r.When)
			}
		}
	}
}

func key(t machine.Table, r machine.Rule) string {
	return strings.Join([]string{t.Name, r.From, r.On, r.When}, "|")
}

// What S2.5 does not name must be refused: cancel in DISPATCHING and REVISION (row 19), and everything
// in a terminal state (S2.6).
func TestWhatNoRowNamesIsRefused(t *testing.T) {
	never := func(string) bool { return false }
	for _, state := range []string{"DISPATCHING", "REVISION"} {
		if _, err := sequencer.Transaction.Next(state, "Cancel", never); err == nil {
			t.Errorf("Cancel is accepted in %s", state)
		}
	}
	for _, state := range sequencer.Transaction.Terminal {
		for _, e := range sequencer.Events {
			if _, err := sequencer.Transaction.Next(state, string(e), never); err == nil {
				t.Errorf("%s is accepted in %s, which is terminal", e, state)
			}
		}
	}
}
