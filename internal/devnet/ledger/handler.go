package ledger

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// Handler serves the calls that the package comment of internal/devnet lists. Faults happen to all of them
// but /faults, /reorg, /blocks and /health, by which they are steered and watched.
func (l *Ledger) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, call := range map[string]func(r *http.Request) (int, any, error){
		"POST /transactions":        l.postTransaction,
		"GET /transactions/{hash}":  l.getTransaction,
		"POST /transactions:status": l.postStatuses,
		"GET /accounts/{address}":   l.getAccount,
		"GET /apps/{name}":          l.getApp,
		"GET /blocks/{height}":      l.getBlock,
		"GET /events":               l.getEvents,
		"POST /faucet":              l.postFaucet,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { l.troubled(w, r, call) })
	}
	for pattern, call := range map[string]func(r *http.Request) (int, any, error){
		"GET /faults":  func(*http.Request) (int, any, error) { return http.StatusOK, l.Faults(), nil },
		"PUT /faults":  l.putFaults,
		"POST /reorg":  l.postReorg,
		"POST /blocks": func(*http.Request) (int, any, error) { b, err := l.Block(); return http.StatusOK, b, err },
		"GET /health":  func(*http.Request) (int, any, error) { return http.StatusOK, l.Health(), nil },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { say(w, r, call) })
	}
	return mux
}

// troubled answers a call, unless a fault happens to it.
func (l *Ledger) troubled(w http.ResponseWriter, r *http.Request, call func(r *http.Request) (int, any, error)) {
	t := l.draw()
	if t.slow > 0 {
		select {
		case <-time.After(t.slow):
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case t.refuse:
		say(w, r, func(*http.Request) (int, any, error) {
			return 0, nil, refuse(http.StatusServiceUnavailable, devnet.CodeUnavailable, "refused by a fault")
		})
	case t.lose:
		call(r)
		panic(http.ErrAbortHandler) // net/http closes the connection without a word
	case t.wrong:
		call(r)
		say(w, r, func(*http.Request) (int, any, error) {
			return http.StatusOK, map[string]any{"hash": "nonsense", "state": "nonsense", "items": []string{}}, nil
		})
	default:
		say(w, r, call)
	}
}

// say does a call and writes what it answers.
func say(w http.ResponseWriter, r *http.Request, call func(r *http.Request) (int, any, error)) {
	status, answer, err := call(r)
	if err != nil {
		var refusal *devnet.Refusal
		if !errors.As(err, &refusal) {
			refusal = refuse(http.StatusServiceUnavailable, devnet.CodeUnavailable, "%v", err)
		}
		status, answer = refusal.Status, map[string]any{"error": refusal}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error means that the caller has left: it needs no answer
}

// read reads the body of a call.
func read(r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 2*devnet.MaxBody+1024))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return refuse(http.StatusBadRequest, devnet.CodeInvalid, "the body is not understood: %v", err)
	}
	return nil
}

func (l *Ledger) postTransaction(r *http.Request) (int, any, error) {
	var s devnet.Signed
	if err := read(r, &s); err != nil {
		return 0, nil, err
	}
	st, taken, err := l.Submit(s)
	if taken {
		return http.StatusAccepted, st, err
	}
	return http.StatusOK, st, err
}

func (l *Ledger) getTransaction(r *http.Request) (int, any, error) {
	st := l.Statuses([]string{r.PathValue("hash")})[0]
	if st.State == devnet.Unknown {
		return 0, nil, refuse(http.StatusNotFound, devnet.CodeNotFound, "no transaction %.80q was ever seen", st.Hash)
	}
	return http.StatusOK, st, nil
}

func (l *Ledger) postStatuses(r *http.Request) (int, any, error) {
	var q struct{ Hashes []string }
	if err := read(r, &q); err != nil {
		return 0, nil, err
	}
	if len(q.Hashes) > 1000 {
		return 0, nil, refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid,
			"there are %d hashes: want at most 1000", len(q.Hashes))
	}
	return http.StatusOK, map[string]any{"items": l.Statuses(q.Hashes)}, nil
}

func (l *Ledger) getAccount(r *http.Request) (int, any, error) {
	a := devnet.Address(r.PathValue("address"))
	out, ok := l.Account(a)
	if !ok {
		return 0, nil, refuse(http.StatusNotFound, devnet.CodeNoAccount,
			"account %.80q never got any money: POST /faucet gives some", string(a))
	}
	return http.StatusOK, out, nil
}

func (l *Ledger) getApp(r *http.Request) (int, any, error) {
	out, ok := l.App(r.PathValue("name"))
	if !ok {
		return 0, nil, refuse(http.StatusNotFound, devnet.CodeNotFound, "there is no app %.80q", out.Name)
	}
	return http.StatusOK, out, nil
}

func (l *Ledger) getBlock(r *http.Request) (int, any, error) {
	which := r.PathValue("height")
	height, err := strconv.ParseUint(which, 10, 64)
	b, ok := l.BlockAt(height, which == "head")
	if err != nil && which != "head" || !ok {
		return 0, nil, refuse(http.StatusNotFound, devnet.CodeNotFound,
			"there is no block %.40q: want head, or a height up to its", which)
	}
	return http.StatusOK, b, nil
}

func (l *Ledger) getEvents(r *http.Request) (int, any, error) {
	limit := 50
	if s := r.URL.Query().Get("limit"); s != "" {
		limit, _ = strconv.Atoi(s) // a text that is no number gives 0, which is refused
	}
	out, err := l.Events(r.URL.Query().Get("cursor"), limit)
	return http.StatusOK, out, err
}

func (l *Ledger) postFaucet(r *http.Request) (int, any, error) {
	var q struct {
		Address devnet.Address
		Amount  uint64 `json:"amount,string"`
	}
	if err := read(r, &q); err != nil {
		return 0, nil, err
	}
	out, err := l.Grant(q.Address, q.Amount)
	return http.StatusOK, out, err
}

func (l *Ledger) putFaults(r *http.Request) (int, any, error) {
	var f devnet.Faults
	if err := read(r, &f); err != nil {
		return 0, nil, err
	}
	err := l.SetFaults(f)
	return http.StatusOK, l.Faults(), err
}

func (l *Ledger) postReorg(r *http.Request) (int, any, error) {
	var q struct {
		Depth int
		Lose  []string
	}
	if err := read(r, &q); err != nil {
		return 0, nil, err
	}
	out, err := l.Reorg(q.Depth, q.Lose)
	return http.StatusOK, out, err
}
