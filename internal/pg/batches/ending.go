package batches

import (
	"fmt"
	"strings"

	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/strict"
	"github.com/postern-dev/postern/internal/twin"
)

// alwaysAgain is how often the message to another installation is sent again. That knows it by its name, and so sending
// it is also how to ask: for a result that a status has no room for, or when nothing was heard within the deadline for
// inclusion.
const alwaysAgain = 1 << 30

// outcome is how the transaction of an execution has ended.
type outcome struct {
	state, text string // "": it has not
	done        []byte // of a batch that went to another installation: its answer
	refused     bool   // nothing was done: the first time that it was sent it was rejected
	taken       bool   // a worker has told a hash of it
}

// of the outcome o of the transaction i, the execution of the batch b. A row of it says why in the first of several
// columns that says anything.
const outcomeColumns = `coalesce(o.state, ''), coalesce(nullif(o.error, ''), nullif(o.error_code, ''), nullif(o.error_class, ''), lower(o.state), ''),
	CASE WHEN b.deliver_as <> '' THEN o.result->'done' END, coalesce(o.error_class = 'rejected' AND o.attempt <= 1, false), coalesce(b.deliver_as <> '' AND o.state <> 'DONE' AND ` + takenSQL + `, false), `

func (o *outcome) fields() []any { return []any{&o.state, &o.text, &o.done, &o.refused, &o.taken} }

// ending is what the end of its transaction means to an execution.
type ending struct {
	on      processor.Event
	text    string           // why it failed
	unclear bool             // of Failed: it may have been executed all the same
	result  processor.Result // of Returned
}

// refused is the end of what was not even tried.
func (v *Batch) refused(why string) ending {
	if v.DeliverAs != "" {
		return ending{on: processor.Returned, text: why, result: processor.Result{Kind: processor.Rejected, Reason: why}}
	}
	return ending{on: processor.Failed, text: why}
}

// resultIn reads a result that came back, false for what is none.
func resultIn(text []byte) (r processor.Result, ok bool) {
	err := strict.Read(text, &r)
	return r, err == nil && r.Kind != ""
}

// of is what an outcome means to the execution of a batch (S4.6). Where the batch went to another installation, only
// that one knows the result: where it did not say, and may have the batch, the result is unknown (S4.14).
func (o outcome) of(v *Batch) ending {
	switch {
	case o.state == "CANCELLED" && v.DeliverAs == "" && strings.HasPrefix(o.text, unreached):
		return ending{on: processor.Unreached, text: o.text}
	case o.state == "CANCELLED" && o.text == undelivered && !o.taken:
		return ending{on: processor.Undelivered, text: o.text}
	case v.DeliverAs == "" && o.state == "DONE":
		return ending{on: processor.Succeeded}
	case v.DeliverAs == "" && twin.Planted("rejection_is_success"):
		return ending{on: processor.Succeeded}
	case v.DeliverAs == "":
		return ending{on: processor.Failed, text: o.text, unclear: o.state == "UNRESOLVED"}
	case o.state == "DONE" && (len(o.done) == 0 || string(o.done) == "null"): // included
		return ending{on: processor.Returned, result: processor.Result{Kind: processor.Executed}}
	case o.state == "DONE":
		r, _ := resultIn(o.done)
		return ending{on: processor.Returned, text: r.Reason, result: r}
	case o.state == "FAILED" && !o.refused: // of a dispatcher that retries nothing that failed: the status itself says which end
		if r, ok := resultIn([]byte(o.text)); ok {
			return ending{on: processor.Returned, text: r.Reason, result: r}
		}
	case o.refused:
		return v.refused(o.text)
	}
	why := fmt.Sprintf("the result did not come back: %s", o.text)
	return ending{on: processor.ResultLost, text: why}
}
