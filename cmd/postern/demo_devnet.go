package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/demo"
)

// devnetProcesses are a devnet and its worker, each a process of its own.
type devnetProcesses struct {
	ledger, worker string // addresses
	stop           func() // ends both, and forgets what is not kept
}

// startDevnet starts a devnet, and a worker in front of it that makes keys and gets money for whatever
// account comes. Kept, they use the directories of `postern devnet` and `postern worker devnet`, else ones
// that are gone at the end. Both end with us, however we end.
func startDevnet(ctx context.Context, kept bool) (*devnetProcesses, error) {
	ledger := []string{"devnet", "--attached", "--listen", "127.0.0.1:0", "--block-every", demo.BlockEvery.String()}
	worker := []string{"worker", "devnet", "--attached", "--auto", "1000000000000"}
	dir := ""
	if !kept {
		var err error
		if dir, err = os.MkdirTemp("", "postern-devnet-"); err != nil {
			return nil, err
		}
		ledger = append(ledger, "--ephemeral")
		worker = append(worker, "--keys", filepath.Join(dir, "keys"), "--data", filepath.Join(dir, "worker"))
	}
	p := &devnetProcesses{}
	var stopLedger, stopWorker func()
	var err error
	if p.ledger, stopLedger, err = app.StartChild(ctx, ledger...); err == nil {
		p.worker, stopWorker, err = app.StartChild(ctx, append(worker, "--ledger", p.ledger)...)
	}
	p.stop = func() {
		for _, stop := range []func(){stopWorker, stopLedger} {
			if stop != nil {
				stop()
			}
		}
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}
