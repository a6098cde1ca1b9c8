package work

import (
	"context"
	"time"
)

// Channels looks after the high-integrity channels of this installation.
type Channels struct{ *Node }

// NewChannels makes what looks after channels in the process of an engine.
func NewChannels(e *Engine) *Channels { return &Channels{e.Node} }

// System is what the engine runs of it.
func (e *Channels) System() System {
	return System{
		Name: "channels",
		Jobs: []Job{{Kind: "channel", Every: 5 * time.Second, Run: e.TendOnce}},
	}
}

// TendOnce runs the retriers and sweepers of the high-integrity channels whose time has come.
func (e *Channels) TendOnce(ctx context.Context) error {
	t, err := e.Store.Channels.TendChannels(ctx)
	if t.Offered+t.Dropped+t.TakenBack > 0 {
		e.Log.Debug("tended channels", "offered", t.Offered, "taken_back", t.TakenBack)
	}
	if t.Dropped > 0 {
		e.Log.Warn("messages of channels were dropped: they were refused as often as their channel allows",
			"dropped", t.Dropped)
	}
	return err
}
