package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/processor"
)

func (a *API) processorRoutes() {
	const tag = "processors"
	processors := a.processors()
	get(a, tag, "/processors", "list-processors", "List processors", processors.list)
	get(a, tag, "/processors/{name}", "get-processor", "Read one processor", processors.get)
	put(a, tag, "/processors/{name}", "put-processor",
		"Create a processor or replace its settings", processors.put, 200, 201)
	patch(a, tag, "/processors/{name}", "patch-processor", "Change the settings of a processor", processors.patch)
	remove(a, tag, "/processors/{name}", "delete-processor", "Remove a processor without batches", processors.delete)
	put(a, tag, "/processors/{name}/height", "put-height", "Raise the block height of its domain", a.putHeight, 200)
	post(a, tag, "/processors/{name}/pause", "pause-processor",
		"Refuse ticks", turned(a.Store.Batches.PauseProcessor, true), 200)
	post(a, tag, "/processors/{name}/resume", "resume-processor",
		"Allow ticks again", turned(a.Store.Batches.PauseProcessor, false), 200)
	post(a, tag, "/processors/{name}/tick", "tick-processor", "Look at one batch", a.tickProcessor, 200)
}

// processorSettings is what people write of a processor.
type processorSettings struct {
	Name         name   `json:"name,omitempty" doc:"If given, the name in the path; it is the domain that functions name."`
	Owner        string `json:"owner,omitempty" maxLength:"200" doc:"The actor that may enqueue, insert, evict, pause and resume. It acts in this context already: a key (key:PREFIX) or a member. Unless said, it stays; a new processor belongs to the one that puts it, with an API key to that key, also when the key is rotated."`
	Fair         bool   `json:"fair,omitempty" doc:"Med does not wait for batches of High that are in their cooldown."`
	TickInterval string `json:"tick_interval,omitempty" example:"1s" doc:"1s unless said; 0s: it is ticked by hand."`
	DeliverAs    string `json:"deliver_as,omitempty" maxLength:"200" example:"FAR" doc:"Of a remote domain whose processor is part of another installation: the type as which each batch goes there, whole. The worker_url of its dispatcher is that of the peer, its secret the peer's."`
	Within       string `json:"deliver_within,omitempty" example:"1m" doc:"Of a remote domain: how long a batch that was not executed at all waits for a worker that can be reached, before it is a timeout; 0s unless said: as long as it takes."`
}

// processorView is a processor as clients read it.
type processorView struct {
	Name             string        `json:"name"`
	Owner            string        `json:"owner"`
	Fair             bool          `json:"fair"`
	TickInterval     string        `json:"tick_interval"`
	Within           string        `json:"deliver_within"`
	DeliverAs        string        `json:"deliver_as" doc:"empty: batches are executed from here"`
	Peers            []string      `json:"peers" doc:"other installations that send it batches"`
	State            string        `json:"state" enum:"Active,Paused"`
	Height           string        `json:"height" doc:"the block height of its domain: digits"`
	High             int64         `json:"high" doc:"batches that stand in the line High"`
	Med              int64         `json:"med" doc:"batches that stand in the line Med"`
	Executing        *int64        `json:"executing" doc:"the batch that is being executed"`
	PendingCallbacks int           `json:"pending_callbacks" doc:"batches that wait for a callback"`
	Starving         *starvingLine `json:"starving" doc:"what keeps the other line waiting"`
	Version          int64         `json:"version"`
	CreatedAt        time.Time     `json:"created_at"`
}

// starvingLine says that a line waits because of a cooldown in the other.
type starvingLine struct {
	Queue string    `json:"queue" enum:"Med"`
	By    int64     `json:"by" doc:"the batch of High for which it waits"`
	Since time.Time `json:"since" doc:"when it failed last"`
}

func viewProcessor(p *batches.Processor) processorView {
	v := processorView{Name: p.Name, Owner: p.Owner, Fair: p.Fair, TickInterval: outbox.Duration(p.TickInterval).String(),
		Within: outbox.Duration(p.DeliverWithin).String(), DeliverAs: p.DeliverAs, Peers: p.Peers, State: "Active", Height: *digits(&p.Height),
		High: p.Length[processor.High], Med: p.Length[processor.Med], Executing: ptr(p.Executing), PendingCallbacks: p.Waiting,
		Version: p.Version, CreatedAt: p.CreatedAt.UTC()}
	if p.Paused {
		v.State = "Paused"
	}
	if s := p.Starving; s != nil {
		v.Starving = &starvingLine{Queue: "Med", By: s.By, Since: s.Since.UTC()}
	}
	return v
}

// processors says what is a processor's own among named things.
func (a *API) processors() resource[processorSettings, *batches.Processor, processorView] {
	return resource[processorSettings, *batches.Processor, processorView]{
		a:    a,
		path: "/processors",
		page: pageInContext(a.Store.Batches.Processors),
		find: inContext(a.Store.Batches.Processor),
		view: simply(viewProcessor),
		head: func(p *batches.Processor) (string, int64) { return p.Name, p.Version },
		settings: func(p *batches.Processor) processorSettings {
			return processorSettings{
				Owner:        p.Owner,
				Fair:         p.Fair,
				TickInterval: outbox.Duration(p.TickInterval).String(),
				Within:       outbox.Duration(p.DeliverWithin).String(),
				DeliverAs:    p.DeliverAs,
			}
		},
		kept:   func(p *batches.Processor, s *processorSettings) { or(&s.Owner, p.Owner) },
		made:   madeProcessor,
		store:  a.putProcessor,
		remove: a.Store.Batches.RemoveProcessor,
	}
}

func madeProcessor(ctx context.Context, id string, s processorSettings) (*batches.Processor, error) {
	if err := ofPath("name", string(s.Name), id); err != nil {
		return nil, err
	}
	or(&s.TickInterval, "1s")
	or(&s.Within, "0s")
	every, err := upToADay("tick_interval", s.TickInterval)
	if err != nil {
		return nil, err
	}
	within, err := upToADay("deliver_within", s.Within)
	if err != nil {
		return nil, err
	}
	return &batches.Processor{
		Name:          id,
		Owner:         s.Owner,
		Fair:          s.Fair,
		TickInterval:  every,
		DeliverWithin: within,
		DeliverAs:     s.DeliverAs,
	}, nil
}

func upToADay(name, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, fault.At("/"+name, "%s %q: want a duration such as \"1s\", from 0s to 24h", name, fault.Clip(s))
	}
	return d, nil
}

type heightInput struct {
	Named
	Trial
	Body struct {
		Height height `json:"height"`
	}
}

// putHeight raises the block height of the domain; 422 for one that is over.
func (a *API) putHeight(ctx context.Context, in *heightInput) (*one[processorView], error) {
	if err := a.Store.Batches.SetHeight(ctx, by(ctx, ""), string(in.Name), int64(in.Body.Height)); err != nil {
		return nil, err
	}
	return a.processors().get(ctx, &in.Named)
}
