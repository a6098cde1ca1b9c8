// Command domain is the service of a domain of notes: each is written into the ledger once, after the keeper of the
// domain has endorsed it. It keeps nothing, so that the same call gets the same answer.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/postern-dev/postern/api/domain"
)

// Note is the data of an intent.
type Note struct {
	Text string `json:"text"`
}

func main() {
	at := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	keeper := flag.String("keeper", "keeper@self", "who endorses notes: name@node")
	typ := flag.String("type", "NOTE", "type of the public transactions")
	flag.Parse()
	service := domain.Service[Note]{
		Assemble: func(_ context.Context, a domain.Assembly[Note]) (domain.Assembled, error) {
			switch {
			case a.Data.Text == "":
				return domain.Assembled{}, domain.Revert("a note wants a text")
			case a.Data.Text == "later":
				return domain.Assembled{}, domain.Park("its author is away", 0)
			}
			return domain.Assembled{
				Assembled: a.Data,
				Outputs:   []domain.Output{{ID: "note." + a.ID, Data: a.Data}},
				Plan: []domain.Attestation{
					{Name: "author", Type: domain.Sign, Parties: []string{a.Party}},
					{Name: "keeper", Type: domain.Endorse, Parties: []string{*keeper}},
				},
			}, nil
		},
		Sign: func(_ context.Context, t domain.Ticket) (any, error) { return "by " + t.Party + ": " + t.Hash, nil },
		Endorse: func(_ context.Context, t domain.Ticket) (any, error) {
			if len(t.Signatures) == 0 {
				return nil, domain.Revert("its author has not signed it")
			}
			return "seen " + t.Hash, nil
		},
		Prepare: func(_ context.Context, p domain.Preparation) (domain.Public, error) {
			call := map[string]any{"to": "note.intent." + p.Intent.ID, "method": "create"}
			return domain.Public{Type: *typ, Data: map[string]any{"calls": []any{call}}}, nil
		},
	}
	log.Printf("notes on http://%s", *at)
	server := &http.Server{Addr: *at, Handler: service.Handler(), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
