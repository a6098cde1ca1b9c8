package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/telemetry"
)

// metricsDefault is where metrics are served unless somebody says otherwise. Processes that share a machine
// share it too, so the second one takes another port.
const metricsDefault = "127.0.0.1:9090"

// measure listens for requests for the metrics of the process, and has the store count for them.
func (a *App) measure(version string) (err error) {
	if a.metrics == nil {
		return nil
	}
	at := a.cfg.MetricsListen
	a.metricsAt, err = listen(at, "metrics-listen")
	if err != nil && at == metricsDefault {
		host, _, _ := net.SplitHostPort(at)
		a.metricsAt, err = listen(net.JoinHostPort(host, "0"), "metrics-listen")
	}
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", a.metrics.Handler(a.log))
	a.probes(mux, version)
	a.metricsServer = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // also of a body, which nothing here has
		WriteTimeout:      time.Minute,
		MaxHeaderBytes:    16 << 10,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	a.store.Count, a.store.Batches.BatchLeft = a.metrics.Entered, a.metrics.BatchLeft
	a.store.Flows.Lapsed = a.metrics.RunnerLapsed
	a.store.Messages.Passed = a.metrics.MessageDeadline
	a.store.Domains.Left, a.store.Domains.Ended = a.metrics.IntentLeft, a.metrics.IntentEnded
	a.store.Domains.Counted = a.metrics.CoordMessage
	a.metrics.Watch(telemetry.Sources{
		Sample: a.sample,
		Waits: func() telemetry.Waits {
			s := a.store.Pool().Stat()
			return telemetry.Waits{Count: uint64(s.EmptyAcquireCount()), Total: s.EmptyAcquireWaitTime()}
		},
		LeaseAge: func() (time.Duration, bool) {
			if a.engine == nil {
				return 0, false
			}
			return a.engine.LeaseAge(), true
		},
	})
	return nil
}

// sample reads what metrics show of the database.
func (a *App) sample(ctx context.Context) (telemetry.Sample, error) {
	s, err := a.store.Reads.TakeSample(ctx)
	v := telemetry.Sample{
		Waiting:        s.Waiting,
		OldestHeads:    s.OldestHeads,
		Queues:         s.Queues,
		HeldByType:     s.HeldByType,
		Held:           s.Held,
		Trouble:        telemetry.Trouble(s.Trouble),
		Deliveries:     s.Deliveries,
		RiverLag:       s.RiverLag,
		OldestSnapshot: s.OldestSnapshot,
	}
	for _, n := range s.Senders {
		v.Senders = append(v.Senders, telemetry.SenderCount(n))
	}
	if err != nil {
		return v, err
	}
	jobs, err := a.store.Flows.TakeSample(ctx)
	v.Jobs = telemetry.Jobs(jobs)
	if err != nil {
		return v, err
	}
	messages, err := a.store.Messages.TakeSample(ctx)
	v.Messages = telemetry.Messages(messages)
	if err != nil {
		return v, err
	}
	peers, err := a.store.Installations.TakeSample(ctx)
	v.Peers = telemetry.Peers(peers)
	if err != nil {
		return v, err
	}
	domains, err := a.store.Domains.TakeSample(ctx)
	v.Domains = telemetry.Domains(domains)
	return v, err
}

// serveMetrics serves them, and the probes, until Close.
func (a *App) serveMetrics() {
	if a.metricsServer == nil {
		return
	}
	go safe.Run("metrics", func() { _ = a.metricsServer.Serve(a.metricsAt) })
	a.log.Info("metrics", "url", a.MetricsURL())
}

// MetricsURL is where GET /metrics can be reached from this machine, "" if it is off.
func (a *App) MetricsURL() string {
	if at := urlOf(a.metricsAt); at != "" {
		return at + "/metrics"
	}
	return ""
}
