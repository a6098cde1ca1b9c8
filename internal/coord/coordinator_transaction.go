package coord

import (
	"slices"

	"github.com/postern-dev/postern/internal/machine"
)

var (
	earlyWorks = []State{Gathering, Blocked, ConfirmingDispatch, ReadyForDispatch}
	poolWorks  = []State{Pooled, PreAssemblyBlocked, Assembling}
	outWorks   = []State{Dispatched, Submitted}
)

// CoordinatorTransaction is the life of a work (S3.9).
var CoordinatorTransaction = table("coordinator_transaction", Pooled, []State{Final, Evicted},
	map[State][]string{
		Assembling:         {"ask_assemble"},
		Gathering:          {"ask_endorsements"},
		ConfirmingDispatch: {"call_prepare"},
		ReadyForDispatch:   {"forget_trouble"},
		Dispatched:         {"post"},
		Confirmed:          {"tell"},
		Reverted:           {"tell"},
		Evicted:            {"tell"},
	},
	[]machine.Rule{
		rule(machine.Start, OnReceived, "unassembled_before", PreAssemblyBlocked),
		rule(machine.Start, OnReceived, "", Pooled),
		rule(PreAssemblyBlocked, OnDependencyAssembled, "none_before", Pooled),
		rule(PreAssemblyBlocked, OnDependencyTerminated, "none_before", Pooled),
		rule(Pooled, OnSelected, "", Assembling),
		rule(Pooled, OnDependencyReverted, "unassembled_before", PreAssemblyBlocked),
		rule(Assembling, OnAssembleSuccess, "stale", Assembling, "ignore"),
		rule(Assembling, OnAssembleSuccess, "inputs_taken", Pooled, "count_taken"),
		rule(Assembling, OnAssembleSuccess, "inputs_gone", Pooled),
		rule(Assembling, OnAssembleSuccess, "plan_open", Gathering, "keep_assembled"),
		rule(Assembling, OnAssembleSuccess, "producers_ready", ConfirmingDispatch, "keep_assembled"),
		rule(Assembling, OnAssembleSuccess, "", Blocked, "keep_assembled"),
		rule(Assembling, OnAssembleRevertResponse, "stale", Assembling, "ignore"),
		rule(Assembling, OnAssembleRevertResponse, "", Reverted, "refused"),
		rule(Assembling, OnAssembleParkResponse, "stale", Assembling, "ignore"),
		rule(Assembling, OnAssembleParkResponse, "", Final),
		rule(Assembling, OnAssembleError, "stale", Assembling, "ignore"),
		rule(Assembling, OnAssembleError, "errors_left", Pooled, "count_error", "wait"),
		rule(Assembling, OnAssembleError, "", Evicted, "keep_trouble"),
		rule(Assembling, OnAssembleRejected, "stale", Assembling, "ignore"),
		rule(Assembling, OnAssembleRejected, "height", Pooled, "keep_trouble", "wait"),
		rule(Assembling, OnAssembleRejected, "", Evicted),
		rule(Assembling, OnRequestTimeoutInterval, "over", Pooled, "count_error", "leave_silent", "back_off"),
		rule(Assembling, OnRequestTimeoutInterval, "", Assembling, "nudge"),
		rule(Gathering, OnEndorsed, "plan_open", Gathering),
		rule(Gathering, OnEndorsed, "producers_ready", ConfirmingDispatch),
		rule(Gathering, OnEndorsed, "", Blocked),
		rule(Gathering, OnEndorsedRejected, "still_possible", Gathering),
		rule(Gathering, OnEndorsedRejected, "rejections_left", Pooled, "count_rejection"),
		rule(Gathering, OnEndorsedRejected, "", Reverted, "not_endorsed"),
		rule(Gathering, OnRequestTimeoutInterval, "over", Pooled, "count_error", "back_off"),
		rule(Gathering, OnRequestTimeoutInterval, "", Gathering, "nudge"),
		rule(Blocked, OnDependencyReady, "producers_ready", ConfirmingDispatch),
		rule(ConfirmingDispatch, OnPrepareDone, "unchecked", ReadyForDispatch),
		rule(ConfirmingDispatch, OnPrepareDone, "", ConfirmingDispatch, "ask_permit"),
		rule(ConfirmingDispatch, OnPrepareError, "errors_left", Pooled, "count_error", "wait"),
		rule(ConfirmingDispatch, OnPrepareError, "", Evicted, "keep_trouble"),
		rule(ConfirmingDispatch, OnDispatchConfirmed, "stale", ConfirmingDispatch, "ignore"),
		rule(ConfirmingDispatch, OnDispatchConfirmed, "", ReadyForDispatch),
		rule(ConfirmingDispatch, OnConfirmationRejected, "stale", ConfirmingDispatch, "ignore"),
		rule(ConfirmingDispatch, OnConfirmationRejected, "", Final),
		rule(ConfirmingDispatch, OnRequestTimeoutInterval, "over", Pooled, "count_error", "back_off"),
		rule(ConfirmingDispatch, OnRequestTimeoutInterval, "", ConfirmingDispatch, "nudge"),
		rule(ReadyForDispatch, OnCollected, "may_dispatch", Dispatched),
		rule(Dispatched, OnNonceAllocated, "", Dispatched, "keep_nonce", "tell"),
		rule(Dispatched, OnDispatchUndone, "takes_works", Pooled, "undo", "wait"),
		rule(Dispatched, OnDispatchUndone, "", Evicted, "undo"),
		rule(Submitted, OnDispatchUndone, "takes_works", Pooled, "undo", "wait"),
		rule(Submitted, OnDispatchUndone, "", Evicted, "undo"),
	},
	each(outWorks, OnSubmitted, "", Submitted, "keep_hash", "tell"),
	each(outWorks, OnConfirmed, "success", Confirmed, "succeed"),
	each(outWorks, OnConfirmed, "unknown", "", "keep_unknown", "look"),
	each(outWorks, OnConfirmed, "must_look", "", "keep_outcome", "look"),
	each(outWorks, OnConfirmed, "reverts_left", Pooled, "count_revert", "wait"),
	each(outWorks, OnConfirmed, "reverts_left_elsewhere", Evicted, "count_revert"),
	each(outWorks, OnConfirmed, "", Reverted, "fail"),
	each(outWorks, OnLooked, "fulfilled", Confirmed, "succeed_otherwise"),
	each(outWorks, OnLooked, "unknown_still", ""),
	each(outWorks, OnLooked, "reverts_left", Pooled, "count_revert", "wait"),
	each(outWorks, OnLooked, "reverts_left_elsewhere", Evicted, "count_revert"),
	each(outWorks, OnLooked, "", Reverted, "fail"),
	each(earlyWorks, OnDependencyReset, "", Pooled),
	each(slices.Concat(poolWorks, earlyWorks), OnDropped, "", Evicted),
	[]machine.Rule{
		rule(Confirmed, OnHeartbeatInterval, "told", Final),
		rule(Confirmed, OnHeartbeatInterval, "", Confirmed, "count_beat", "tell"),
		rule(Reverted, OnHeartbeatInterval, "told", Final),
		rule(Reverted, OnHeartbeatInterval, "", Reverted, "count_beat", "tell"),
	},
)

var works binding[*Work]

func init() {
	works = binding[*Work]{table: &CoordinatorTransaction, guards: workGuards, effects: workEffects}
}

var workGuards = map[string]func(*turn, *Work, fact) bool{
	"unassembled_before": func(t *turn, w *Work, _ fact) bool { return t.unassembledBefore(w) },
	"none_before":        func(t *turn, w *Work, _ fact) bool { return !t.unassembledBefore(w) },
	"stale":              func(t *turn, w *Work, f fact) bool { return t.stale(w, f.m) },
	"inputs_taken":       func(t *turn, w *Work, f fact) bool { return t.takenBy(w, f.m.Assembled.Inputs) != "" },
	"inputs_gone":        func(t *turn, w *Work, f fact) bool { return t.gone(w, f.m.Assembled.Inputs) },
	"plan_open":          func(_ *turn, w *Work, f fact) bool { return w.planOpen(f.m) },
	"producers_ready":    func(t *turn, w *Work, f fact) bool { return t.producersReady(w, f.m) },
	"errors_left":        func(t *turn, w *Work, _ fact) bool { return w.Errors < t.d.Settings.AssembleErrorThreshold },
	"height":             func(_ *turn, _ *Work, f fact) bool { return f.m.Reason == HeightTolerance },
	"over":               func(t *turn, w *Work, _ fact) bool { return t.over(w) },
	"still_possible":     func(_ *turn, w *Work, _ fact) bool { return w.possible() },
	"rejections_left": func(t *turn, w *Work, _ fact) bool {
		return w.Rejections < t.d.Settings.EndorseRejectThreshold
	},
	"unchecked": func(t *turn, _ *Work, _ fact) bool { return t.planted(PermitNotChecked) },
	"may_dispatch": func(t *turn, w *Work, _ fact) bool {
		return t.d.Seat.Coordinator == Active && t.room() && t.producersOut(w)
	},
	"takes_works": func(t *turn, w *Work, _ fact) bool { return t.takesBack(w) },
	"success":     func(_ *turn, _ *Work, f fact) bool { return f.core.State == CoreSuccess },
	"unknown": func(t *turn, _ *Work, f fact) bool {
		return f.core.State == CoreUnknown && !t.planted(TimeoutIsRevert)
	},
	"must_look": func(t *turn, _ *Work, _ fact) bool { return t.d.Settings.Look },
	"fulfilled": func(_ *turn, _ *Work, f fact) bool { return f.ans.Result == Fulfilled },
	"unknown_still": func(_ *turn, w *Work, f fact) bool {
		return f.ans.Result != Unknown || w.Unknown || w.Reason == "" // no outcome but that of the ledger
	},
	"reverts_left": func(t *turn, w *Work, f fact) bool { return t.revertsLeft(w, f) && t.takesBack(w) },
	"reverts_left_elsewhere": func(t *turn, w *Work, f fact) bool {
		return t.revertsLeft(w, f)
	},
	"told": func(t *turn, w *Work, _ fact) bool {
		told := w.Told || t.d.peer(w.Origin) == nil // its node waits for no word any more
		return told && w.Beats >= t.d.Settings.FinalGrace
	},
}

var workEffects = map[string]func(*turn, *Work, fact){
	"ignore":           func(t *turn, w *Work, f fact) { t.ignore(string(f.m.Kind), "stale") },
	"ask_assemble":     func(t *turn, w *Work, _ fact) { t.askAssemble(w) },
	"ask_endorsements": func(t *turn, w *Work, _ fact) { t.askEndorsements(w) },
	"call_prepare":     func(t *turn, w *Work, _ fact) { t.callPrepare(w) },
	"ask_permit":       func(t *turn, w *Work, _ fact) { t.askPermit(w) },
	"forget_trouble":   func(_ *turn, w *Work, _ fact) { w.Trouble = "" },
	"post":             func(t *turn, w *Work, _ fact) { t.post(w) },
	"tell":             func(t *turn, w *Work, _ fact) { t.tell(w) },
	"keep_assembled":   (*turn).keepAssembled,
	"count_error":      func(_ *turn, w *Work, f fact) { w.Errors++; w.keepTrouble(f.text) },
	"count_taken": func(t *turn, w *Work, f fact) {
		w.Errors++
		w.keepTrouble("it spends what " + t.takenBy(w, f.m.Assembled.Inputs) + " spends, which is on its way")
	},
	"keep_trouble":    func(_ *turn, w *Work, f fact) { w.keepTrouble(f.text) },
	"count_rejection": func(_ *turn, w *Work, f fact) { w.Rejections++; w.keepTrouble("not endorsed: " + f.text) },
	"count_revert":    func(_ *turn, w *Work, _ fact) { w.Reverts++; w.Retry, w.Unknown = false, false },
	"wait":            func(t *turn, w *Work, _ fact) { w.NotBefore = t.now.Add(t.d.Settings.RequestTimeout) },
	"back_off":        (*turn).backOff,
	"leave_silent":    (*turn).leaveSilent,
	"nudge":           func(t *turn, w *Work, _ fact) { t.nudge(w) },
	"keep_nonce":      func(_ *turn, w *Work, f fact) { w.Nonce = f.core.Nonce },
	"keep_hash":       func(_ *turn, w *Work, f fact) { w.Hash = f.core.Hash },
	"keep_unknown":    func(_ *turn, w *Work, _ fact) { w.Unknown = true },
	"keep_outcome": func(_ *turn, w *Work, f fact) {
		w.Retry, w.Reason, w.Unknown = f.core.Retry, f.core.Reason, false
	},
	"look": func(t *turn, w *Work, _ fact) { t.look(w) },
	"undo": func(_ *turn, w *Work, _ fact) { w.Unknown, w.Retry = false, false },
	"succeed": func(_ *turn, w *Work, _ fact) {
		w.Outcome, w.Reason, w.Told, w.Beats = Success, "", false, 0
	},
	"succeed_otherwise": func(_ *turn, w *Work, _ fact) {
		w.Outcome, w.Reason, w.Told, w.Beats, w.Other = Success, "", false, 0, true
	},
	"fail": func(_ *turn, w *Work, f fact) {
		if f.core != nil {
			w.Reason = f.core.Reason
		}
		w.Outcome, w.Told, w.Beats = Failure, false, 0
	},
	"refused":      func(_ *turn, w *Work, f fact) { w.Outcome, w.Reason, w.Told = Failure, f.m.Reason, true },
	"not_endorsed": func(_ *turn, w *Work, f fact) { w.Outcome, w.Reason = Failure, "not endorsed: "+f.text },
	"count_beat":   func(_ *turn, w *Work, _ fact) { w.Beats++ },
}
