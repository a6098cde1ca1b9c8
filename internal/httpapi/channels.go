package httpapi

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) channelRoutes() {
	const tag = "leader"
	channels := a.channels()
	get(a, tag, "/channels", "list-channels", "List channels of both kinds", a.listChannels)
	get(a, tag, "/channels/{name}", "get-channel", "Read one channel", channels.get)
	put(a, tag, "/channels/{name}", "put-channel", "Create or replace a channel", channels.put, 200, 201)
	patch(a, tag, "/channels/{name}", "patch-channel", "Change a channel", channels.patch)
	remove(a, tag, "/channels/{name}", "delete-channel",
		"Take a cap out of use, or remove an empty channel", channels.delete)
	post(a, tag, "/channels/{name}/block", "block-channel", "Keep results from a cap for a while", a.blockChannel, 200)
	post(a, tag, "/channels/{name}/unblock", "unblock-channel",
		"Let results through a cap again", a.unblockChannel, 200)
}

// channelSettings is what people write of a channel, of either kind.
type channelSettings struct {
	Name      name   `json:"name,omitempty" doc:"If given, the name in the path."`
	Kind      string `json:"kind" enum:"cap,integrity" doc:"cap: a leader cap, through which results go to the workflow, one at a time; it is a sender of the pool leader. integrity: messages between two processes; none is lost."`
	Cap       string `json:"cap,omitempty" maxLength:"200" doc:"cap: the object that it is."`
	GasCoin   string `json:"gas_coin,omitempty" maxLength:"200" doc:"cap"`
	Wallet    string `json:"wallet,omitempty" maxLength:"200" doc:"cap"`
	WorkerURL string `json:"worker_url,omitempty" maxLength:"2000" doc:"cap: its own worker; else that of the dispatcher leader.result."`

	Capacity      *int   `json:"capacity,omitempty" doc:"integrity: how many messages are offered at most; more are stored, and wait. 100 unless said."`
	MaxRetries    *int   `json:"max_retries,omitempty" doc:"integrity: nacks after which a message is dropped, with a record. 5 unless said."`
	RetryInterval string `json:"retry_interval,omitempty" example:"5s" doc:"integrity"`
	StaleAfter    string `json:"stale_after,omitempty" example:"5m" doc:"integrity: what is held for longer is taken back."`
	SweepInterval string `json:"sweep_interval,omitempty" example:"30s" doc:"integrity"`
}

// channelView is a channel as clients read it. Fields of the other kind are missing.
type channelView struct {
	Warned
	Name         string     `json:"name"`
	Kind         string     `json:"kind" enum:"cap,integrity"`
	State        string     `json:"state,omitempty" enum:"open,busy,blocked,paused" doc:"cap"`
	Cap          string     `json:"cap,omitempty"`
	GasCoin      string     `json:"gas_coin,omitempty"`
	Wallet       string     `json:"wallet,omitempty"`
	WorkerURL    string     `json:"worker_url,omitempty"`
	BlockedUntil *time.Time `json:"blocked_until,omitempty" doc:"missing beside a block_reason: until somebody unblocks it"`
	BlockReason  string     `json:"block_reason,omitempty"`
	LastUsedAt   *time.Time `json:"last_used_at,omitempty"`

	Capacity      *int   `json:"capacity,omitempty"`
	MaxRetries    *int   `json:"max_retries,omitempty"`
	RetryInterval string `json:"retry_interval,omitempty"`
	StaleAfter    string `json:"stale_after,omitempty"`
	SweepInterval string `json:"sweep_interval,omitempty"`
	Queued        *int   `json:"queued,omitempty" doc:"counted to 100,000, in lists to 1001, as the others"`
	Offered       *int   `json:"offered,omitempty"`
	Active        *int   `json:"active,omitempty"`
	Dropped       *int   `json:"dropped,omitempty"`

	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
}

// capAttributes are those of a sender that is a channel.
type capAttributes struct {
	Cap     string `json:"cap,omitempty"`
	GasCoin string `json:"gas_coin,omitempty"`
	Wallet  string `json:"wallet,omitempty"`
}

func viewCap(s *pg.Sender) channelView {
	x := viewSender(s)
	v := channelView{Name: s.Account, Kind: "cap", State: "open", WorkerURL: s.WorkerURL, BlockedUntil: x.BlockedUntil, BlockReason: s.BlockReason,
		LastUsedAt: x.LastUsedAt, Version: s.Version, CreatedAt: x.CreatedAt}
	var at capAttributes
	_ = json.Unmarshal(s.Attributes, &at)
	v.Cap, v.GasCoin, v.Wallet = at.Cap, at.GasCoin, at.Wallet
	switch {
	case s.State != string(outbox.FREE):
		v.State = "busy"
	case s.BlockedUntil != nil:
		v.State = "blocked"
	case s.Paused:
		v.State = "paused"
	}
	return v
}

func viewIntegrity(c *channels.ChannelInfo) channelView {
	text := func(d time.Duration) string { return outbox.Duration(d).String() }
	return channelView{Name: c.Name, Kind: "integrity", Capacity: &c.Capacity, MaxRetries: &c.MaxRetries, RetryInterval: text(c.RetryEvery), StaleAfter: text(c.StaleAfter),
		SweepInterval: text(c.SweepEvery), Queued: &c.Queued, Offered: &c.Offered, Active: &c.Active, Dropped: &c.Dropped, Version: c.Version, CreatedAt: c.CreatedAt.UTC()}
}

type listChannelsInput struct {
	Kind   string `query:"kind" enum:"cap,integrity"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

// listChannels lists channels of both kinds by name.
func (a *API) listChannels(ctx context.Context, in *listChannelsInput) (*pageOf[channelView], error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	filters, after := []any{"channels", in.Kind}, ""
	if err := p.read(filters, &after); err != nil {
		return nil, err
	}
	items := []channelView{}
	if in.Kind != "integrity" {
		caps, err := a.Store.Channels.Caps(ctx, contextID(ctx), after, limit+1)
		if err != nil {
			return nil, err
		}
		for _, s := range caps {
			items = append(items, viewCap(s))
		}
	}
	if in.Kind != "cap" {
		found, err := a.Store.Channels.Channels(ctx, contextID(ctx), after, limit+1)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			items = append(items, viewIntegrity(c))
		}
	}
	slices.SortFunc(items, func(x, y channelView) int { return strings.Compare(x.Name, y.Name) })
	out := &pageOf[channelView]{}
	if len(items) > limit {
		items = items[:limit]
		out.Body.Next, out.Link = p.next(ctx, filters, items[limit-1].Name)
	}
	out.Body.Items = items
	return out, nil
}

// channels says what is a channel's own among named things.
func (a *API) channels() resource[channelSettings, *channelView, channelView] {
	return resource[channelSettings, *channelView, channelView]{
		a:        a,
		path:     "/channels",
		find:     a.channel,
		view:     simply(func(v *channelView) channelView { return *v }),
		head:     func(v *channelView) (string, int64) { return v.Name, v.Version },
		settings: settingsOfChannel,
		address:  func(s channelSettings) (string, string) { return "/worker_url", s.WorkerURL },
		warnings: func(v *channelView) *[]string { return &v.Warnings },

		made:   madeChannel,
		store:  a.storeChannel,
		remove: a.removeChannel,
	}
}

func settingsOfChannel(v *channelView) channelSettings {
	return channelSettings{
		Kind:          v.Kind,
		Cap:           v.Cap,
		GasCoin:       v.GasCoin,
		Wallet:        v.Wallet,
		WorkerURL:     v.WorkerURL,
		Capacity:      v.Capacity,
		MaxRetries:    v.MaxRetries,
		RetryInterval: v.RetryInterval,
		StaleAfter:    v.StaleAfter,
		SweepInterval: v.SweepInterval,
	}
}

// channel finds a channel of either kind.
func (a *API) channel(ctx context.Context, called string) (*channelView, error) {
	s, err := a.Store.Sender(ctx, contextID(ctx), called)
	if err == nil && s.Pool == leader.PoolOfResults {
		v := viewCap(s)
		return &v, nil
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	c, err := a.Store.Channels.Channel(ctx, contextID(ctx), called)
	if err != nil {
		return nil, err
	}
	v := viewIntegrity(c)
	return &v, nil
}

// storeChannel creates a channel or replaces its settings; 409 if there is one of the other kind.
func (a *API) storeChannel(ctx context.Context, by db.By, v *channelView, version int64) (bool, error) {
	if there, err := a.channel(ctx, v.Name); err == nil && there.Kind != v.Kind {
		return false, fault.New(fault.Conflict, "in_use",
			"channel %q is of kind %s: delete it first, or choose another name", fault.Clip(v.Name), there.Kind)
	} else if err != nil && fault.KindOf(err) != fault.NotFound {
		return false, err
	}
	if v.Kind == "cap" {
		return a.storeCap(ctx, by, v, version)
	}
	c, err := settingsOfChannel(v).integrity(v.Name)
	if err != nil {
		return false, err
	}
	return a.Store.Channels.PutChannel(ctx, by, c, version)
}

func (a *API) storeCap(ctx context.Context, by db.By, v *channelView, version int64) (bool, error) {
	if x, err := a.Store.Sender(ctx, by.Context, v.Name); err == nil && x.Pool != leader.PoolOfResults {
		return false, fault.New(fault.Conflict, "in_use",
			"there is a sender %q in pool %q: choose another name", fault.Clip(v.Name), x.Pool)
	}
	attributes, err := json.Marshal(capAttributes{v.Cap, v.GasCoin, v.Wallet})
	if err != nil {
		return false, err
	}
	return a.Store.PutSender(ctx, by, pg.Sender{
		Account:    v.Name,
		Pool:       leader.PoolOfResults,
		WorkerURL:  v.WorkerURL,
		Attributes: attributes,
	}, version)
}

func madeChannel(_ context.Context, called string, s channelSettings) (*channelView, error) {
	if err := ofPath("name", string(s.Name), called); err != nil {
		return nil, err
	}
	if s.Kind == "integrity" {
		c, err := s.integrity(called)
		v := viewIntegrity(&channels.ChannelInfo{ChannelSettings: c})
		return &v, err
	}
	if s.Capacity != nil || s.MaxRetries != nil || s.RetryInterval != "" || s.StaleAfter != "" || s.SweepInterval != "" {
		return nil, fault.At("/kind",
			"a channel of kind cap has neither capacity nor retries of its own: its dispatcher leader.result has")
	}
	if err := checkWorkerURL("/worker_url", s.WorkerURL, false); err != nil {
		return nil, err
	}
	return &channelView{
		Name:      called,
		Kind:      s.Kind,
		Cap:       s.Cap,
		GasCoin:   s.GasCoin,
		Wallet:    s.Wallet,
		WorkerURL: s.WorkerURL,
	}, nil
}

// integrity reads the settings of a channel of that kind over the defaults.
func (s channelSettings) integrity(called string) (c channels.ChannelSettings, err error) {
	if s.Cap != "" || s.GasCoin != "" || s.Wallet != "" || s.WorkerURL != "" {
		return c, fault.At("/kind", "a channel of kind integrity has neither cap, gas coin, wallet nor worker")
	}
	c = channels.DefaultChannel()
	c.Name = called
	if s.Capacity != nil {
		c.Capacity = *s.Capacity
	}
	if s.MaxRetries != nil {
		c.MaxRetries = *s.MaxRetries
	}
	for _, w := range []struct {
		field, text string
		into        *time.Duration
	}{
		{"retry_interval", s.RetryInterval, &c.RetryEvery},
		{"stale_after", s.StaleAfter, &c.StaleAfter},
		{"sweep_interval", s.SweepInterval, &c.SweepEvery},
	} {
		if w.text == "" {
			continue
		}
		d, err := time.ParseDuration(w.text)
		if err != nil {
			return c, fault.At("/"+w.field, "%s %q: want a duration such as \"30s\"", w.field, fault.Clip(w.text))
		}
		*w.into = d
	}
	return c, nil
}

// removeChannel removes a channel: one of kind cap finishes what it holds, one of kind integrity must be empty.
func (a *API) removeChannel(ctx context.Context, by db.By, called string) error {
	v, err := a.channel(ctx, called)
	switch {
	case err != nil:
		return err
	case v.Kind == "cap":
		return a.Store.RemoveSender(ctx, by, v.Name)
	case channels.OwnedChannel(v.Name):
		return fault.New(fault.Conflict, "in_use",
			"channel %q is a part of the leader: it stays as long as the context", v.Name)
	}
	return a.Store.Channels.RemoveChannel(ctx, by, v.Name)
}

type blockChannelInput struct {
	Named
	Trial
	Body *blockBody
}

// blockChannel keeps results from going through a cap, until a moment or until somebody unblocks it.
func (a *API) blockChannel(ctx context.Context, in *blockChannelInput) (*leverOutput, error) {
	if err := a.isCap(ctx, string(in.Name)); err != nil {
		return nil, err
	}
	return a.blockSender(ctx, &blockInput{Account: in.Name, Trial: in.Trial, Body: in.Body})
}

func (a *API) unblockChannel(ctx context.Context, in *actNamed) (*leverOutput, error) {
	if err := a.isCap(ctx, string(in.Name)); err != nil {
		return nil, err
	}
	return a.unblockSender(ctx, &senderActionInput{Account: in.Name, Trial: in.Trial, Body: in.Body})
}

func (a *API) isCap(ctx context.Context, called string) error {
	v, err := a.channel(ctx, called)
	if err == nil && v.Kind != "cap" {
		return fault.New(fault.Conflict, "wrong_state", "channel %q is of kind integrity: only caps are blocked", fault.Clip(called))
	}
	return err
}
