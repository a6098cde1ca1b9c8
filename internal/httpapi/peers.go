package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/remote"
)

// peerDispatch is a part of the paths by which batches come from peers, and of no other.
const peerDispatch = "/dispatch/"

// peerRoutes are those of a worker, which a processor is to another installation: batches come as dispatches (S2.7),
// and /status tells what became of them (S4.14). The caller is a peer, and signs with its secret instead of showing a
// key.
func (a *API) peerRoutes() {
	const tag, at = "processors", "/contexts/{context}/processors/{name}/peers/{peer}"
	put(a, tag, "/processors/{name}/peers/{peer}", "put-peer",
		"Let another installation send it batches", a.putPeer, 200)
	remove(a, tag, "/processors/{name}/peers/{peer}", "delete-peer",
		"Take no more of another installation", a.deletePeer)
	op := operation(tag, http.MethodPost, at+"/dispatch/{type}", "deliver-batch", "As a peer: send a batch, once however often", []int{202, 200})
	op.Errors = append(op.Errors, 408, 409, 413, 415)
	register(a, op, a.deliverBatch)
	op = operation(tag, http.MethodPost, at+"/status/{type}", "ask-batch", "As a peer: ask what became of a batch", []int{200})
	op.Errors = append(op.Errors, 408, 413, 415)
	register(a, op, a.askBatch)
	op = operation(tag, http.MethodGet, at+"/health", "get-peer-health", "As a peer: whether batches are taken", nil)
	register(a, op, a.peerHealth)
}

type peerInput struct {
	Name name `path:"name"`
	Peer name `path:"peer"`
	Trial
}

type putPeerInput struct {
	Name name `path:"name"`
	Peer name `path:"peer"`
	Trial
	Body struct {
		Secret string `json:"secret" writeOnly:"true" pattern:"^whsec_[A-Za-z0-9+/]{32,86}={0,2}$" patternDescription:"whsec_ and the base64 of 24 to 64 bytes" doc:"What the other installation signs with: the secret of its dispatcher."`
	}
}

type peerOutput struct {
	Body struct {
		Peer      string `json:"peer"`
		WorkerURL string `json:"worker_url" doc:"Of the dispatcher at the other installation, behind the address of this one."`
	}
}

// putPeer lets another installation send batches to a processor, with what its owner may.
func (a *API) putPeer(ctx context.Context, in *putPeerInput) (*peerOutput, error) {
	secret, err := remote.ParseSecret(in.Body.Secret)
	if err != nil {
		return nil, fault.At("/secret", "secret: %s", err)
	}
	if err := a.Store.Batches.PutPeer(ctx, by(ctx, ""), string(in.Name), string(in.Peer), secret); err != nil {
		return nil, err
	}
	out := &peerOutput{}
	out.Body.Peer = string(in.Peer)
	out.Body.WorkerURL = "/contexts/" + scopeOf(ctx).Context.Name + "/processors/" + string(in.Name) + "/peers/" + out.Body.Peer
	return out, nil
}

// deletePeer takes nothing more from an installation.
func (a *API) deletePeer(ctx context.Context, in *peerInput) (*struct{}, error) {
	return nil, a.Store.Batches.RemovePeer(ctx, by(ctx, ""), string(in.Name), string(in.Peer))
}

// signedCall is a call of the worker contract by a peer.
type signedCall struct {
	Context   name   `path:"context"`
	Name      name   `path:"name"`
	Peer      name   `path:"peer"`
	Type      name   `path:"type" doc:"As the peer calls it."`
	ID        string `header:"webhook-id" doc:"The path below the peer, a slash, and the token or something drawn."`
	Timestamp string `header:"webhook-timestamp"`
	Signature string `header:"webhook-signature" doc:"By the secret of the peer, as Standard Webhooks has it (v1)."`
	RawBody   []byte
	Body      workerBody
}

// workerBody is a body of the worker contract. Only its fields about a batch are read.
type workerBody map[string]any

// believe returns the context of a call that its peer has signed. 404: there is no such processor or peer; 401: it is
// not signed, or not by it; 403: it is a peer of another processor.
func (a *API) believe(ctx context.Context, in *signedCall, verb string) (int32, error) {
	c := a.Store.Context(string(in.Context))
	if c == nil {
		return 0, noContext(string(in.Context))
	}
	secrets, may, err := a.Store.Batches.Peer(ctx, c.ID, string(in.Name), string(in.Peer))
	if err != nil {
		return 0, err
	}
	h := http.Header{"Webhook-Id": {in.ID}, "Webhook-Timestamp": {in.Timestamp}, "Webhook-Signature": {in.Signature}}
	for _, key := range secrets {
		if err = worker.Believe(key, h, verb+"/"+string(in.Type), in.RawBody); err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return 0, unauthenticated(err.Error())
	case !may:
		return 0, fault.New(fault.Forbidden, "forbidden", "%q is no peer of processor %q", string(in.Peer), string(in.Name))
	}
	return c.ID, nil
}

type deliveredOutput struct {
	Status int
	Body   struct {
		Hash  string       `json:"hash" doc:"of a batch that goes on: what its status is asked by"`
		Done  *batchResult `json:"done" doc:"of one that has ended"`
		Error *string      `json:"error"`
	}
}

// deliverBatch takes a batch of a peer: 202 it is stored; 200 it was known; 409 another one was known by that name.
func (a *API) deliverBatch(ctx context.Context, in *signedCall) (*deliveredOutput, error) {
	b, err := a.arrived(ctx, in)
	if err != nil {
		return nil, toWorkerCaller(err)
	}
	out := &deliveredOutput{Status: http.StatusAccepted}
	if b.Replay {
		out.Status = http.StatusOK
	}
	if b.State == processor.Done {
		out.Body.Done = viewResult(b.Result)
	} else {
		out.Body.Hash = hashOf(b)
	}
	return out, nil
}

// hashOf names a batch to the peer that sent it, for good.
func hashOf(b *batches.Batch) string { return fmt.Sprintf("%d@%d", b.ID, b.CreatedAt.UnixMicro()) }

func (a *API) arrived(ctx context.Context, in *signedCall) (*batches.Batch, error) {
	id, err := a.believe(ctx, in, "dispatch")
	if err != nil {
		return nil, err
	}
	var call struct {
		TxData struct {
			Data json.RawMessage
			TS   time.Time
		} `json:"txData"`
		Postern struct{ Token string }
	}
	if err := json.Unmarshal(in.RawBody, &call); err != nil {
		return nil, fault.At("", "the call is not understood: %s", fault.Clip(err.Error()))
	}
	m := batches.Arrival{Peer: string(in.Peer), Origin: transactionOf(call.Postern.Token), Posted: call.TxData.TS}
	if m.Origin == "" {
		return nil, fault.At("/postern/token", "token %q: want the id of a transaction, a dot, and the number of its attempt", fault.Clip(call.Postern.Token))
	}
	if err := strictly("/txData/data", call.TxData.Data, &m.Envelope); err != nil {
		return nil, err
	}
	if err := a.checkExpiration(ctx, "/txData/data/expiration_time", m.Expiration); err != nil {
		return nil, err
	}
	who := by(ctx, "")
	who.Context = id
	return a.Store.Batches.Receive(ctx, who, string(in.Name), m)
}

// transactionOf is the transaction of a token, "" for what is no token.
func transactionOf(token string) string {
	i := strings.LastIndexByte(token, '.')
	if i <= 0 || len(token) > 100 {
		return ""
	}
	return token[:i]
}

// toWorkerCaller adds to a refusal what the worker contract calls it (S2.8): blocked where nothing was done and the
// same call may be taken later; rejected where it never will be; ambiguous where it is unknown whether anything was
// done, so that the caller asks about it.
func toWorkerCaller(err error) error {
	f := fault.As(err)
	class := worker.ClassRejected
	switch {
	case f.Kind == fault.Internal, f.Code == "commit_unknown":
		class = worker.ClassAmbiguous
	case f.Kind == fault.Retry, f.Code == "unauthenticated", f.Code == "wrong_installation", f.Code == "queue_draining":
		class = worker.ClassBlocked
	}
	return f.With("error", map[string]string{"class": class, "code": f.Code, "message": f.Detail})
}

type askedOutput struct {
	Body struct {
		State         string  `json:"state" enum:"pending,included,failed,unknown" doc:"included: all of it was executed; failed: it ended otherwise, and how says a dispatch of the same batch."`
		Hash          string  `json:"hash"`
		BlockHeight   *string `json:"block_height" doc:"the batch, once it was executed"`
		Confirmations int     `json:"confirmations"`
		FailureReason *string `json:"failure_reason" doc:"of failed: the result, as JSON"`
	}
}

// askBatch says what became of a batch of a peer, asked after by its hash, or by the token that brought it.
func (a *API) askBatch(ctx context.Context, in *signedCall) (*askedOutput, error) {
	contextID, err := a.believe(ctx, in, "status")
	if err != nil {
		return nil, err
	}
	var q struct{ Token, Hash string }
	if err := json.Unmarshal(in.RawBody, &q); err != nil || q.Token == "" && q.Hash == "" {
		return nil, fault.At("", `want {"token": ...} or {"hash": ...}`)
	}
	out := &askedOutput{}
	out.Body.State, out.Body.Hash = "unknown", q.Hash
	number, _, _ := strings.Cut(q.Hash, "@")
	id, _ := strconv.ParseInt(number, 10, 64) // a hash without a number is the hash of no batch
	b, err := a.Store.Batches.Sent(ctx, contextID, string(in.Name), string(in.Peer), id, transactionOf(q.Token))
	if err != nil || b == nil || q.Token == "" && q.Hash != hashOf(b) {
		return out, err
	}
	out.Body.Hash = hashOf(b)
	switch {
	case b.State != processor.Done:
		out.Body.State = "pending"
	case b.Result.Kind == processor.Executed: // nothing takes it out again
		out.Body.State, out.Body.BlockHeight, out.Body.Confirmations = "included", ptr(strconv.FormatInt(b.ID, 10)), math.MaxInt32
	default:
		why, err := json.Marshal(viewResult(b.Result))
		if err != nil {
			return nil, err
		}
		out.Body.State, out.Body.FailureReason = "failed", ptr(string(why))
	}
	return out, nil
}

type peerHealthInput struct {
	Context name `path:"context"`
	Name    name `path:"name"`
	Peer    name `path:"peer"`
}

type peerHealthOutput struct {
	Body struct {
		OK bool `json:"ok"`
	}
}

// peerHealth says whether this process can take batches; of the peer it says nothing, since the question is not signed.
func (a *API) peerHealth(ctx context.Context, _ *peerHealthInput) (*peerHealthOutput, error) {
	if a.drained.Load() {
		return nil, fault.New(fault.Retry, "draining", "this process is shutting down")
	}
	if _, err := a.Store.Now(ctx); err != nil {
		return nil, err
	}
	out := &peerHealthOutput{}
	out.Body.OK = true
	return out, nil
}
