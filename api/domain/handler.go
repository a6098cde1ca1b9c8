package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// largest is how much of a call is read.
const largest = 2 << 20

// Handler answers what Postern asks. An error that is neither Revert nor Park is answered with 500: Postern counts it,
// and asks again.
func (s Service[T]) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]bool{"ok": true}, nil)
	})
	handle(mux, "assemble", func(ctx context.Context, in struct {
		Call
		Intent struct {
			Intent
			Data T `json:"data"`
		} `json:"intent"`
		Height  int64   `json:"height"`
		Pending Pending `json:"pending"`
	}) (any, error) {
		made, err := s.Assemble(ctx, Assembly[T]{Call: in.Call, Intent: in.Intent.Intent, Data: in.Intent.Data,
			Height: in.Height, Pending: in.Pending})
		if err != nil {
			return nil, err
		}
		return struct {
			Result string `json:"result"`
			Assembled
		}{"OK", made}, nil
	})
	handle(mux, "sign", func(ctx context.Context, t Ticket) (any, error) {
		v, err := s.Sign(ctx, t)
		return map[string]any{"signature": v}, err
	})
	handle(mux, "endorse", func(ctx context.Context, t Ticket) (any, error) {
		v, err := s.Endorse(ctx, t)
		if r := refused(err); r != nil {
			return map[string]any{"revert_reason": r.Reason}, nil
		}
		return map[string]any{"endorsement": v}, err
	})
	handle(mux, "prepare", func(ctx context.Context, p Preparation) (any, error) {
		public, err := s.Prepare(ctx, p)
		if r := refused(err); r != nil {
			return nil, fmt.Errorf("%s", r.Reason)
		}
		return public, err
	})
	if s.Look != nil {
		handle(mux, "look", s.look)
	}
	if s.Settled != nil {
		handle(mux, "settled", func(ctx context.Context, t Settlement) (any, error) {
			return struct{}{}, s.Settled(ctx, t)
		})
	}
	if s.Height != nil {
		mux.HandleFunc("GET /height", func(w http.ResponseWriter, r *http.Request) {
			height, err := s.Height(r.Context())
			answer(w, map[string]any{"height": height}, err)
		})
	}
	return mux
}

func (s Service[T]) look(ctx context.Context, in struct {
	Intents []string `json:"intents"`
}) (any, error) {
	items := []map[string]string{}
	for _, id := range in.Intents {
		there, err := s.Look(ctx, id)
		if err != nil {
			return nil, err
		}
		state := "unknown"
		if there {
			state = "fulfilled"
		}
		items = append(items, map[string]string{"state": state})
	}
	return map[string]any{"items": items}, nil
}

// handle answers calls of one kind.
func handle[In any](mux *http.ServeMux, kind string, do func(context.Context, In) (any, error)) {
	mux.HandleFunc("POST /"+kind, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			if kind == "assemble" { // the data of the intent, which no later call would mend
				answer(w, nil, Revert("the intent is not understood: "+err.Error()))
				return
			}
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := do(r.Context(), in)
		answer(w, out, err)
	})
}

func answer(w http.ResponseWriter, out any, err error) {
	if r := refused(err); r != nil {
		out, err = r, nil
	}
	body, failed := json.Marshal(out)
	if err == nil {
		err = failed
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
