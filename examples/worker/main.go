// Command worker is a whole worker with the kit: payments through a bank that knows a payment by its reference, and
// greetings, which are done at once. Its tokens and answers survive its own restart.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/postern-dev/postern/api/worker"
)

type payment struct {
	To    string `json:"to"`
	Cents int64  `json:"cents"`
}

// firstFee is offered for the first attempt of a payment, and more for each that follows.
const firstFee = 100

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: worker ADDRESS FILE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	store, err := worker.OpenFile(os.Args[2], 30*24*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	var b bank
	w := worker.New(worker.Options{Store: store, Status: b.status, Secret: os.Getenv("WORKER_SECRET")})

	worker.Handle(w, "PAY", func(ctx context.Context, c worker.Call[payment]) (worker.Answer, error) {
		if c.Data.Cents < 0 {
			return worker.Answer{}, worker.Rejected("bad_amount",
				fmt.Sprintf("cents is %d: want 0 or more", c.Data.Cents))
		}
		// The transaction is the reference: however often we ask, the bank pays once.
		return worker.Sent(b.pay(c.Transaction, c.Data)).WithFee(c.Offer(firstFee)), nil
	})
	worker.OnFailure(w, "PAY", func(ctx context.Context, e worker.Ended[payment]) error {
		log.Printf("%s was not paid: %s", e.Data.To, e.Result.Error)
		return nil
	})
	worker.Handle(w, "GREET", func(ctx context.Context, c worker.Call[struct{ Name string }]) (worker.Answer, error) {
		return worker.Done(map[string]string{"greeting": "Hello " + c.Data.Name}), nil
	})
	if err := w.Run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
