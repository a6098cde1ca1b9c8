package httpapi

import (
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// transactionView is a transaction as clients read it.
type transactionView struct {
	ID           orNull            `json:"id"`
	Context      string            `json:"context"`
	Actor        string            `json:"actor" doc:"who posted it"`
	Queue        *string           `json:"queue" doc:"null for unordered work"`
	Position     int64             `json:"position" doc:"the order of arrival in its queue; never changes; 0 while staged"`
	PlacedBefore *int64            `json:"placed_before" doc:"the position that it was moved before; null where it goes out by its own, or last"`
	Type         string            `json:"type"`
	UID          string            `json:"uid"`
	State        outbox.State      `json:"state" enum:"WAITING,DISPATCHING,REVISION,RETRY,DONE,FAILED,UNRESOLVED,CANCELLED"`
	QueueState   *string           `json:"queue_state" doc:"of its queue while it is in flight; null when terminal"`
	Retries      int               `json:"retries"`
	Attempt      int               `json:"attempt" doc:"0 before the first"`
	MaxRetries   *int              `json:"max_retries"`
	Sender       *string           `json:"sender"`
	Fee          *string           `json:"fee" doc:"digits"`
	Hash         *string           `json:"hash"`
	BlockHeight  *string           `json:"block_height" doc:"digits"`
	ReceivedAt   time.Time         `json:"received_at"`
	NotBefore    *time.Time        `json:"not_before"`
	SubmittedAt  *time.Time        `json:"submitted_at"`
	RetriedAt    *time.Time        `json:"retried_at"`
	DoneAt       *time.Time        `json:"done_at"`
	NextAt       *time.Time        `json:"next_at"`
	Suspended    bool              `json:"suspended" doc:"it is not sent until somebody resumes it"`
	Held         bool              `json:"held" doc:"sent, and an operator has to say what came of it"`
	Staged       bool              `json:"staged" doc:"submitted by SQL, committed, and about to get its id"`
	RedriveOf    *string           `json:"redrive_of"`
	RedrivenBy   *string           `json:"redriven_by"`
	MovedFrom    *string           `json:"moved_from" doc:"its id in the queue that it was moved out of; it leads here"`
	DependsOn    []string          `json:"depends_on" doc:"ids"`
	Callback     *outbox.Callback  `json:"callback"`
	Tags         map[string]string `json:"tags"`
	Error        *errorView        `json:"error"`
	Data         json.RawMessage   `json:"data,omitempty"`
	Result       *resultView       `json:"result,omitempty"`
	History      []historyView     `json:"history,omitempty"`
}

// orNull is an id, or null where there is none yet.
type orNull string

// MarshalJSON writes what is empty as null.
func (s orNull) MarshalJSON() ([]byte, error) { return json.Marshal(ptr(string(s))) }

// Schema documents it; in Go clients it stays a plain string, empty for null.
func (orNull) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true, Description: "null while staged",
		Extensions: map[string]any{"x-go-type-skip-optional-pointer": true}}
}

// errorView is what went wrong last.
type errorView struct {
	Class   *string `json:"class" doc:"blocked, ambiguous, rejected, retry; null when no worker said so"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
}

// resultView is what the worker answered (S2.7).
type resultView struct {
	Hash string          `json:"hash,omitempty"`
	Done json.RawMessage `json:"done,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// include says which heavy parts are shown.
type include struct{ data, result, history bool }

func viewTransaction(t *pg.Transaction, with include) transactionView {
	v := transactionView{Staged: t.Staged, Context: t.Context, Actor: t.Actor, Queue: ptr(t.Queue), Position: t.ID.Seq, Type: t.Type, UID: t.UID,
		State: t.State, QueueState: ptr(t.QueueState), Retries: t.Retries, Attempt: t.Attempt, MaxRetries: t.MaxRetries, Sender: ptr(t.Sender),
		Fee: ptr(t.Fee), Hash: ptr(t.Hash), BlockHeight: ptr(t.BlockHeight), ReceivedAt: t.ReceivedAt.UTC(), NotBefore: utc(t.NotBefore),
		SubmittedAt: utc(t.SubmittedAt), RetriedAt: utc(t.RetriedAt), DoneAt: utc(t.DoneAt), NextAt: utc(t.NextAt),
		RedriveOf: ptr(t.RedriveOf), RedrivenBy: ptr(t.RedrivenBy), MovedFrom: ptr(t.MovedFrom), Suspended: t.Suspended, Held: t.Held,
		PlacedBefore: ptr(t.PlacedBefore), DependsOn: t.DependsOn, Callback: t.Callback, Tags: map[string]string{}}
	if v.DependsOn == nil {
		v.DependsOn = []string{}
	}
	if !t.Staged {
		v.ID = orNull(t.ID.String())
	}
	if len(t.Tags) > 0 {
		_ = json.Unmarshal(t.Tags, &v.Tags)
	}
	if t.Class != "" || t.Code != "" || t.Error != "" {
		v.Error = &errorView{ptr(string(t.Class)), t.Code, t.Error}
	}
	if with.data {
		v.Data = shownData(t.Type, t.Data)
	}
	if with.result && len(t.Result) > 0 {
		v.Result = &resultView{}
		_ = json.Unmarshal(t.Result, v.Result)
	}
	return v
}

// shownData is the data of a transaction as it is shown: that of one which carries a job is shown without the values of
// its environment, which may be secrets.
func shownData(typ string, data json.RawMessage) json.RawMessage {
	if _, ok := flow.ScriptType(typ); !ok {
		return data
	}
	var fields map[string]json.RawMessage
	var env map[string]any
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["env_vars"], &env) != nil {
		return data
	}
	for name := range env {
		env[name] = masked
	}
	fields["env_vars"], _ = json.Marshal(env) // names and stars
	shown, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return shown
}

// accepted is a transaction right after its commit. It waits, so that it need not be read from the database.
func accepted(sub *pg.Submission, a pg.Accepted, context string) *pg.Transaction {
	t := &pg.Transaction{ID: a.ID, Context: context, Queue: sub.Queue, UID: sub.UID, Actor: sub.Actor, Type: sub.Type, Data: sub.Data,
		MaxRetries: sub.MaxRetries, Callback: sub.Callback, Tags: sub.Tags, State: outbox.WAITING, QueueState: string(outbox.FREE), Sender: sub.Sender, ReceivedAt: a.At}
	if t.UID == "" {
		t.UID = a.ID.String()
	}
	if !sub.NotBefore.IsZero() {
		t.NotBefore = &sub.NotBefore
	}
	return t
}

// etagOf changes whenever anything that a reader sees of a transaction does.
func etagOf(t *pg.Transaction) string { return `"` + t.Tag() + `"` }

func ptr[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// transactionOutput answers with one transaction.
type transactionOutput struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key was known already"`
	Applied  string `header:"Preference-Applied" doc:"wait=N when the request did wait"`
	Body     *transactionView
}

func showTransaction(t *pg.Transaction) *transactionOutput {
	v := viewTransaction(t, include{data: true, result: true})
	return &transactionOutput{Status: 200, ETag: etagOf(t), Body: &v}
}

var _ huma.SchemaProvider = name("")
