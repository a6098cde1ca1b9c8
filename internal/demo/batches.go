package demo

import "fmt"

// batchSample is a batch that the demo of processors sends, and how it must end.
type batchSample struct {
	name    string // of the app that its actions call
	note    string
	atomic  bool
	actions []string // methods of the app; revert always fails
	retries int      // of the batch, or of each action
	confirm bool     // the last action waits for its callback, which the demo makes once it is asked to
	high    bool
	evict   bool // it is inserted at the head of its line, while the processor is paused, and evicted again
	old     bool // it has expired before it is sent
	want    string
	n       int // what the result counts
	calls   int // of the app, afterwards
}

// batchSamples are one of each way in which a batch ends.
var batchSamples = []batchSample{
	{name: "pay", note: "three actions, one after the other", actions: []string{"debit", "credit", "note"}, want: "executed", calls: 3},
	{name: "swap", note: "three actions, all at once", atomic: true, actions: []string{"give", "take", "note"}, high: true, want: "executed", calls: 3},
	{name: "mint", note: "all at once, and one of them fails each time", atomic: true, actions: []string{"mint", "revert"}, retries: 2, want: "rejected"},
	{name: "ship", note: "the second action fails each time", actions: []string{"pack", "revert", "send"}, retries: 1, want: "partially_executed", n: 1, calls: 1},
	{name: "fail", note: "the first action fails, and is not tried again", actions: []string{"revert", "send"}, want: "rejected"},
	{name: "vote", note: "the second action is to be confirmed", actions: []string{"open", "close"}, confirm: true, want: "executed", calls: 2},
	{name: "late", note: "expired before it was sent", actions: []string{"send"}, old: true, want: "expired"},
	{name: "oops", note: "inserted at the head, and evicted", actions: []string{"send"}, evict: true, want: "removed_by_owner"},
	{name: "rush", note: "of High, which goes before Med", actions: []string{"send"}, high: true, want: "executed", calls: 1},
}

// body is the batch as the API takes it, for a processor.
func (s batchSample) body(processor, app string) map[string]any {
	logic := map[string]any{"times": map[string]int{"amount": s.retries}, "interval": map[string]int{"seconds": 1}}
	var functions, messages []any
	for i, method := range s.actions {
		f := map[string]any{"domain": processor, "contract_address": batchType, "message_details": map[string]any{"message": map[string]any{"name": method}}}
		if s.retries > 0 && !s.atomic {
			f["retry_logic"] = logic
		}
		if s.confirm && i == len(s.actions)-1 {
			f["callback_confirmation"] = map[string]any{"contract_address": "dev", "callback_message": map[string]any{"seen": app}}
		}
		functions = append(functions, f)
		messages = append(messages, map[string]any{"msg": map[string]any{method: map[string]any{"to": app, "step": fmt.Sprint(i + 1)}}})
	}
	sub := map[string]any{"functions": functions}
	kind := "non_atomic"
	if s.atomic {
		kind = "atomic"
		if s.retries > 0 {
			sub["retry_logic"] = logic
		}
	}
	priority := "Med"
	if s.high {
		priority = "High"
	}
	body := map[string]any{"actions_config": map[string]any{kind: sub}, "msgs": messages, "priority": priority}
	if s.old {
		body["expiration_time"] = "2020-01-01T00:00:00Z"
	}
	return body
}
