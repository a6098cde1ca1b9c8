package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Run listens on address and serves until ctx ends; see Serve. A main function passes the context of
// signal.NotifyContext.
func (w *Worker) Run(ctx context.Context, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	w.log.Info("worker", "url", "http://"+l.Addr().String())
	return w.Serve(ctx, l)
}

// Serve serves until ctx ends. Then it takes no more connections, lets calls end for Options.Grace, ends the contexts
// of those that go on, and closes the store if it can be closed. A token whose call was cut off stays known as begun.
func (w *Worker) Serve(ctx context.Context, l net.Listener) error {
	if w.bad != nil {
		return errors.Join(w.bad, l.Close())
	}
	server := &http.Server{Handler: w.Handler(), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	stopped := make(chan error, 1)
	served := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-served:
		}
		stopped <- w.shutdown(server)
	}()
	err := server.Serve(l)
	close(served)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	err = errors.Join(err, <-stopped)
	if c, ok := w.store.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// shutdown ends the server: calls get the grace, then a second to notice that their context has ended.
func (w *Worker) shutdown(server *http.Server) error {
	grace := w.options.Grace
	if grace <= 0 {
		grace = 30 * time.Second
	}
	defer w.stop()
	for _, d := range []time.Duration{grace, time.Second} {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		err := server.Shutdown(ctx)
		cancel()
		if err == nil {
			return nil
		}
		w.stop()
	}
	return errors.Join(errors.New("calls went on after their context had ended, and were cut off"), server.Close())
}
