package main

import (
	"context"
	"os"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/demo"
)

// devnetProcesses are a devnet and its worker, each a process of its own.
type devnetProcesses struct {
	ledger, worker string // addresses
	stop           func() // ends both, and forgets their keys
}

// startDevnet starts a devnet that keeps nothing, and a worker in front of it that makes keys and gets
// money for whatever account comes. Both end with us, however we end.
func startDevnet(ctx context.Context) (*devnetProcesses, error) {
	dir, err := os.MkdirTemp("", "postern-devnet-")
	if err != nil {
		return nil, err
	}
	p := &devnetProcesses{}
	var stopLedger, stopWorker func()
	p.ledger, stopLedger, err = app.StartChild(ctx, "devnet", "--attached", "--ephemeral", "--listen", "127.0.0.1:0", "--block-every", demo.BlockEvery.String())
	if err == nil {
		p.worker, stopWorker, err = app.StartChild(ctx, "worker", "devnet", "--attached", "--ledger", p.ledger, "--keys", dir+"/keys", "--data", dir+"/worker", "--auto", "1000000000000")
	}
	p.stop = func() {
		for _, stop := range []func(){stopWorker, stopLedger} {
			if stop != nil {
				stop()
			}
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}
