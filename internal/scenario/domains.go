package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/remote"
)

// far is what a story knows of domains. A story has one database: each node of a domain is a context of it, and knows
// the others as peers, so that what they say goes through their doors.
type far struct {
	service *httptest.Server
	nodes   []string // in the order in which they were named
	by      map[string]db.By
	spends  map[string][]string // by uid
	ids     map[string]string   // of intents, by uid
	homes   map[string]string   // nodes of intents, by uid

	mu     sync.Mutex
	names  map[string]string   // uids of intents, by id
	cut    map[string]bool     // nodes to and from which nothing comes
	script map[string][]string // what the service answers, by call and uid
}

const theDomain = "tok"

// domain: domain [nodes=ann,ben] [mode=ENDORSER] [SETTING=VALUE]... The domain of the story, for public transactions of
// type T. Heartbeats are a second apart, requests are repeated after a second, and a state may last for 3 s.
func domain(s *story, c *command, _ say) error {
	f := s.far
	if f == nil {
		f = &far{by: map[string]db.By{}, spends: map[string][]string{}, ids: map[string]string{},
			homes: map[string]string{}, names: map[string]string{}, cut: map[string]bool{},
			script: map[string][]string{}}
		f.service = httptest.NewServer(http.HandlerFunc(f.serve))
		s.t.Cleanup(f.service.Close)
		s.far = f
	}
	set := domains.Default()
	set.Types = []string{"T"}
	set.Heartbeat, set.RequestTimeout, set.StateTimeout = oneSecond, oneSecond, 3*oneSecond
	set.MinTenure = 1
	if text := c.option("nodes", ""); text != "" {
		set.Nodes = strings.Split(text, ",")
	}
	set.Mode, set.Static = c.option("mode", set.Mode), c.option("static", "")
	set.Once, set.Rotate = c.option("once", set.Once), c.option("rotation", set.Rotate)
	for name, into := range map[string]*int{"reverts": &set.Reverts, "errors": &set.AssembleErrors,
		"rejections": &set.Rejections, "max_inflight": &set.MaxInflight, "min_tenure": &set.MinTenure} {
		n, err := strconv.Atoi(c.option(name, strconv.Itoa(*into)))
		if err != nil {
			return err
		}
		*into = n
	}
	var err error
	if set.BlockRange, err = strconv.ParseInt(c.option("block_range", "100"), 10, 64); err != nil {
		return err
	}
	if set.Nodes == nil {
		f.nodes, f.by = []string{set.Self}, map[string]db.By{set.Self: s.by}
		set.Nodes, set.ServiceURL = f.nodes, f.service.URL+"/"+set.Self
		_, err := s.store.Domains.Put(s.ctx, s.by, theDomain, set, 0)
		return err
	}
	f.nodes = set.Nodes
	return s.far.settle(s, set)
}

const oneSecond = outbox.Duration(time.Second)

// settle makes the contexts of the nodes, their peers, and the domain of each.
func (f *far) settle(s *story, set domains.Settings) error {
	d := s.store.DispatcherOf(s.by.Context, "T")
	if d == nil {
		return errors.New("say dispatcher T first")
	}
	for _, node := range f.nodes {
		_, err := s.store.PutContext(s.ctx, s.by, pg.Tenant{Context: pg.Context{Name: node, MaxDepth: 1000}}, 0)
		if err != nil {
			return err
		}
	}
	if err := s.store.Refresh(s.ctx); err != nil {
		return err
	}
	for _, node := range f.nodes {
		by := s.by
		by.Context = s.store.Context(node).ID
		f.by[node] = by
		if _, err := s.store.PutDispatcher(s.ctx, by, d.Dispatcher, 0); err != nil {
			return err
		}
		for _, other := range f.nodes {
			if other == node {
				continue
			}
			_, err := s.store.Installations.PutPeer(s.ctx, by, peers.Settings{Name: other, Insecure: true,
				URL: s.listen() + "/contexts/" + other + "/peers/" + node, Secret: make([]byte, 32)}, 0)
			if err != nil {
				return err
			}
		}
	}
	for _, node := range f.nodes {
		set.Self, set.ServiceURL = node, f.service.URL+"/"+node
		if _, err := s.store.Domains.Put(s.ctx, f.by[node], theDomain, set, 0); err != nil {
			return err
		}
	}
	return nil
}

// wire is how nodes call each other: by their doors, as long as the wires of both are whole. A call over one that is
// cut is lost.
func (s *story) wire(call func(context.Context, remote.PeerCall) remote.PeerAnswer) func(context.Context,
	remote.PeerCall) remote.PeerAnswer {
	return func(ctx context.Context, c remote.PeerCall) remote.PeerAnswer {
		if door, ok := outbox.DoorOf(c.URL); ok && s.far != nil {
			s.far.mu.Lock()
			lost := s.far.cut[door.Context] || s.far.cut[door.Peer]
			s.far.mu.Unlock()
			if lost {
				return remote.PeerAnswer{}
			}
		}
		return call(ctx, c)
	}
}

// serve is the service of all nodes: as it is told, else it makes of each intent one state, which its party signs, and
// a majority of the nodes endorses.
func (f *far) serve(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Party     string
		Intent    *struct{ ID, Party string }
		Assembled struct{ UID string }
	}
	_, kind, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := q.Assembled.UID
	if q.Intent != nil {
		uid = f.names[q.Intent.ID]
	}
	said, text := "ok", ""
	for _, key := range []string{kind + " " + uid, kind + " *"} {
		if list := f.script[key]; len(list) > 0 {
			said, text, _ = strings.Cut(list[0], ":")
			if len(list) > 1 {
				f.script[key] = list[1:]
			}
			break
		}
	}
	answer := map[string]any{"signature": "s", "endorsement": "e", "type": "T", "data": map[string]any{"intent": uid}}
	switch {
	case said == "away":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case said == "error":
		w.WriteHeader(http.StatusInternalServerError)
		return
	case said == "refuse":
		answer = map[string]any{"revert_reason": text}
	case kind == "assemble" && said == "ok":
		endorsers := []string{}
		for _, n := range f.nodes {
			endorsers = append(endorsers, "e@"+n)
		}
		inputs := []string{}
		for _, in := range f.spends[uid] {
			inputs = append(inputs, "of "+in)
		}
		answer = map[string]any{"result": "OK", "assembled": map[string]any{"uid": uid}, "inputs": inputs,
			"outputs": []any{map[string]any{"id": "of " + uid}},
			"plan": []any{
				map[string]any{"name": "owner", "type": "sign", "parties": []string{q.Intent.Party}},
				map[string]any{"name": "nodes", "type": "endorse", "parties": endorsers,
					"threshold": len(endorsers)/2 + 1},
			}}
	case kind == "assemble":
		answer = map[string]any{"result": strings.ToUpper(said), "reason": text}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// service: service CALL UID|* ANSWER... ok, revert:TEXT, park:TEXT, refuse:TEXT (an endorsement), away (it says try
// again) or error. The last answer counts from then on.
func service(s *story, c *command, _ say) error {
	key := c.word() + " " + c.word()
	s.far.mu.Lock()
	defer s.far.mu.Unlock()
	s.far.script[key] = c.rest()
	return nil
}

// intent: intent UID... [at=NODE] [depends=UID,...] [in=UID,...]. All or none. in: the intents whose states it spends.
func intent(s *story, c *command, say say) error {
	f := s.far
	node := c.option("at", f.nodes[0])
	split := func(text string) []string { return strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) }
	on, in := split(c.option("depends", "")), split(c.option("in", ""))
	var list []domains.NewIntent
	for _, uid := range c.rest() {
		list = append(list, domains.NewIntent{UID: uid, Party: "p", Data: json.RawMessage(`1`), DependsOn: on})
		f.spends[uid], f.homes[uid] = in, node
	}
	got, err := s.store.Domains.Submit(s.ctx, f.by[node], theDomain, list, func(int) string { return "" })
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range got {
		if i.Replay {
			say("%s is known", i.UID)
			continue
		}
		f.names[i.ID], f.ids[i.UID] = i.UID, i.ID
		s.short = append(s.short, i.ID, i.UID)
	}
	return nil
}

// intents: intents [UID]... Those of each node, in the order of their arrival.
func intents(s *story, c *command, say say) error {
	of := c.rest()
	for _, node := range s.far.nodes {
		list, err := s.store.Domains.Intents(s.ctx, s.far.by[node].Context, theDomain, domains.IntentFilter{Limit: 100})
		if err != nil {
			return err
		}
		slices.Reverse(list)
		for _, i := range list {
			if len(of) > 0 && !slices.Contains(of, i.UID) {
				continue
			}
			if i.Receipt == "success" {
				i.Text = "" // a hash, or nothing
			}
			say("%s %s %s%s", node, i.UID, i.State, fields("receipt", i.Receipt, "because", i.Text, "parked", i.Parked,
				"with", i.Image.Delegate, "permit", i.Holder, "unknown", i.Unknown))
		}
	}
	return nil
}

// works: what each node coordinates.
func works(s *story, _ *command, say say) error {
	for _, node := range s.far.nodes {
		list, err := s.store.Domains.Works(s.ctx, s.far.by[node].Context, theDomain, "", 0, 100)
		if err != nil {
			return err
		}
		for _, w := range list {
			say("%s %s %s%s", node, s.far.names[w.ID], w.State, fields("errors", w.Image.Errors, "rejections",
				w.Image.Rejections, "reverts", w.Image.Reverts))
		}
	}
	return nil
}

// seats: what each node does in the domain, and which one coordinates, as it knows.
func seats(s *story, _ *command, say say) error {
	for _, node := range s.far.nodes {
		var originator, coordinator, leader string
		if err := s.each(`SELECT s.originator, s.coordinator, coalesce(s.image->'Seat'->>'Leader', '')
			FROM postern.coord_state s JOIN postern.domain d USING (domain_id)
			WHERE d.context_id = $1`, []any{s.far.by[node].Context}, []any{&originator, &coordinator, &leader},
			func() error { return nil }); err != nil {
			return err
		}
		say("%s %s %s%s", node, originator, coordinator, fields("led_by", leader))
	}
	return nil
}

// path: path UID... [of=works] [at=NODE]. The states that an intent has gone through, or the work of a node for it.
func path(s *story, c *command, say say) error {
	machine := "originator_transaction"
	if c.option("of", "") == "works" {
		machine = "coordinator_transaction"
	}
	at := c.option("at", "")
	for _, uid := range c.rest() {
		node := at
		if node == "" {
			node = s.far.homes[uid]
		}
		steps, err := s.store.Domains.History(s.ctx, s.far.by[node].Context, theDomain, uid)
		if err != nil {
			return err
		}
		var list []string
		for _, x := range steps {
			if x.Machine == machine {
				list = append(list, x.To)
			}
		}
		say("%s %s", uid, strings.Join(list, " "))
	}
	return nil
}

// publics: the public transactions of all intents, by their uids.
func publics(s *story, _ *command, say say) error {
	var list []string
	var uid, state, code string
	err := s.each(`SELECT uid, state, coalesce(error_code, '') FROM postern.tx WHERE uid LIKE ':coord:%'`, nil,
		[]any{&uid, &state, &code}, func() error {
			list = append(list, s.shorten(uid+" "+state+fields("code", code)))
			return nil
		})
	slices.Sort(list)
	for _, l := range list {
		say("%s", l)
	}
	return err
}

// run: run SECONDS. So many times a second passes, and n1 does all that it can do now.
func run(s *story, c *command, _ say) error {
	n, err := strconv.Atoi(c.word())
	for range n {
		if err == nil {
			err = s.pass(time.Second)
		}
		if err == nil {
			err = s.round("n1")
		}
	}
	return err
}

// wired: cut NODE..., mend NODE.... Nothing comes to a node that is cut, or from it.
func wired(cut bool) func(*story, *command, say) error {
	return func(s *story, c *command, _ say) error {
		s.far.mu.Lock()
		defer s.far.mu.Unlock()
		for _, node := range c.rest() {
			s.far.cut[node] = cut
		}
		return nil
	}
}

// blocks: blocks HEIGHT [NODE]... The block height of the domain, as these nodes know it; all, if none is named.
func blocks(s *story, c *command, _ say) error {
	height, err := strconv.ParseInt(c.word(), 10, 64)
	if err != nil {
		return err
	}
	nodes := c.rest()
	if len(nodes) == 0 {
		nodes = s.far.nodes
	}
	for _, node := range nodes {
		if err := s.store.Domains.SetHeight(s.ctx, s.far.by[node], theDomain, height, true); err != nil {
			return err
		}
	}
	return nil
}

// onIntent: LEVER UID [reason=]. A lever of an intent.
func onIntent(pull func(*story, db.By, string) (pg.LeverResult, error)) func(*story, *command, say) error {
	return func(s *story, c *command, say say) error {
		uid := c.word()
		by := s.far.by[s.far.homes[uid]]
		by.Reason = c.option("reason", "")
		r, err := pull(s, by, uid)
		if err == nil && !r.Changed {
			say("%s: nothing changed", uid)
		}
		return err
	}
}

// whyIntent: why-intent UID. What it waits for.
func whyIntent(s *story, c *command, say say) error {
	uid := c.word()
	w, err := s.store.Domains.WhyIntent(s.ctx, s.far.by[s.far.homes[uid]].Context, theDomain, uid)
	if err != nil {
		return err
	}
	for n, b := range w.Blockers {
		var levers []string
		for _, l := range b.Levers {
			levers = append(levers, l.Path[strings.LastIndexByte(l.Path, '/')+1:])
		}
		say("%s%s %s%s", strings.Repeat("  ", n), uid, b.Kind, fields("levers", strings.Join(levers, ",")))
	}
	return nil
}
