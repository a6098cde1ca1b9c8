// Command postern is Postern: the API and the sequencer (serve, work), the database's migrations, a whole
// installation for development (dev, demo), and a client. `postern -h` is the reference.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/postern-dev/postern/internal/devpg"
)

func main() {
	devpg.MaybeChild()
	if os.Getenv("GOGC") == "" { // the live heap is small; at 200 a tenth of the processor time goes into collecting
		debug.SetGCPercent(400)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:]))
}
