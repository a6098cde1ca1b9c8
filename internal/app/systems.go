package app

import (
	"crypto/ed25519"

	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// newEngine builds what dispatches: the core, and every system there is. A new one is added here.
func (a *App) newEngine(version string) *work.Engine {
	e := work.New(work.Config{
		Store:       a.store,
		Worker:      remote.Mux{Next: a.remote, Jobs: a.store.Flows},
		Log:         a.log,
		Loops:       &a.loops,
		Reach:       a.remote.Reach(),
		NodeName:    a.cfg.NodeName,
		Metrics:     a.metrics,
		Traces:      a.traces,
		Version:     version,
		TTL:         a.cfg.LeaseTTL,
		Concurrency: a.cfg.Concurrency,
		Types:       a.cfg.Types,
		Grace:       a.cfg.ShutdownGrace,
		Retention:   a.cfg.Retention.Long(),
	})
	a.store.Messages.Open = a.cfg.Auth == "none"
	deliveries := work.NewDeliveries(e, work.DeliveriesConfig{
		Webhook:    a.remote.Webhook,
		SigningKey: ed25519.PrivateKey(a.cfg.SigningKey),
	})
	events := work.NewEvents(e, work.EventsConfig{Fetch: a.remote.Fetch, Dial: a.remote.Dial, Tools: a.remote})
	peers := work.NewPeers(e, work.PeersConfig{Call: a.remote.CallPeer})
	e.Add(
		deliveries.System(),
		events.System(),
		work.NewBatches(e).System(),
		work.NewChannels(e).System(),
		work.NewJobs(e).System(),
		work.NewMessages(e).System(),
		peers.System(),
		work.NewDomains(e, a.remote, peers).System(),
	)
	return e
}
