package scenario

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// say adds to what a command says, line by line.
type say func(format string, args ...any)

// commands are all that a story can do. UIDs are names of transactions; times are from now.
var commands map[string]func(*story, *command, say) error

func init() { // the functions name commands in their errors
	commands = map[string]func(*story, *command, say) error{
		// what there is
		"dispatcher": dispatcher, "sender": sender, "queue": queue, "pool": pool, "post": post, "remove": remove,

		// what the worker does
		"answer": answer, "status": status, "worker": workerIs,

		// what happens
		"later": later, "round": round, "freeze": freeze, "thaw": thaw, "crash": crash, "leave": leave, "sweep": sweep,

		// what people do
		"pause": paused(true), "resume": paused(false), "drain": drain, "redrive": redrive, "block": block, "unblock": unblock,
		"cancel":   on(func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error) { return s.store.Cancel(s.ctx, by, id) }),
		"abandon":  on(func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error) { return s.store.Abandon(s.ctx, by, id) }),
		"was-done": on(func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error) { return s.store.WasDone(s.ctx, by, id) }),
		"was-not-done": on(func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error) {
			return s.store.WasNotDone(s.ctx, by, id)
		}),
		"suspend": on(func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error) { return s.store.Suspend(s.ctx, by, id) }),
		"move":    move,
		"retry":   on(func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error) { return s.store.RetryNow(s.ctx, by, id) }),

		// high-integrity channels
		"channel": channel, "send": send, "receive": receive, "ack": judge(true), "nack": judge(false), "retrier": retrier, "sweeper": sweeper, "tend": tend,

		// processors
		"processor": aProcessor, "height": height, "enqueue": enqueue, "evict": evict, "authorize": authorize, "batch": sendsBatch, "resend": resend, "tick": tick, "advance": advance,
		"confirm": confirm, "subscribe": subscribe, "shuffle": shuffle,
		// the leader
		"source": source, "feed": feed, "tool": tool, "listen": listen, "lead": lead, "redrive-event": redriveEvent, "redrive-result": redriveResult, "redrive-tool": redriveTool,
		"events": events, "history": history, "told": told, "toolcalls": toolCalls, "whyevent": whyEvent, "register": register, "walk": walk,

		// domains
		"domain": domain, "service": service, "intent": intent, "run": run, "cut": wired(true), "mend": wired(false),
		"blocks": blocks, "intents": intents, "works": works, "seats": seats, "path": path, "publics": publics,
		"why-intent": whyIntent,
		"resume-intent": onIntent(func(s *story, by db.By, uid string) (pg.LeverResult, error) {
			return s.store.Domains.Resume(s.ctx, by, theDomain, uid)
		}),
		"cancel-intent": onIntent(func(s *story, by db.By, uid string) (pg.LeverResult, error) {
			return s.store.Domains.Cancel(s.ctx, by, theDomain, uid)
		}),
		"intent-was-not-done": onIntent(func(s *story, by db.By, uid string) (pg.LeverResult, error) {
			return s.store.Domains.Release(s.ctx, by, theDomain, uid, false)
		}),

		// reports
		"rows": rows, "queues": queues, "senders": senders, "pools": pools, "lanes": lanes, "attempts": attempts, "outcome": outcome, "hooks": hooks, "calls": calls, "why": why,
		"messages": messages, "lines": lines, "range": inRange, "batches": batches, "record": record, "authorizations": authorizations, "whybatch": whyBatch, "hears": hears,
	}
}

// harmless are the commands that cannot change a row.
var harmless = map[string]bool{
	"answer": true, "status": true, "worker": true,
	"service": true, "cut": true, "mend": true, "intents": true, "works": true, "seats": true, "path": true,
	"publics": true, "why-intent": true, "rows": true, "queues": true, "senders": true, "pools": true, "lanes": true, "attempts": true, "outcome": true, "hooks": true, "calls": true, "why": true, "messages": true,
	"feed": true, "events": true, "history": true, "told": true, "toolcalls": true, "whyevent": true, "walk": true,
	"lines": true, "range": true, "batches": true, "record": true, "authorizations": true, "whybatch": true,
}

// later: later DURATION
func later(s *story, c *command, _ say) error {
	d, err := time.ParseDuration(c.word())
	if err != nil {
		return err
	}
	return s.pass(d)
}

// round: round [NODE]
func round(s *story, c *command, _ say) error { return s.round(nodeName(c)) }

// nodeName is the node that a command names, n1 if it names none.
func nodeName(c *command) string {
	if n := c.word(); n != "" {
		return n
	}
	return "n1"
}

// freeze: freeze [NODE] [at=call|answer|question|reply] [uid=] [alive=yes]. Alive, only its calls hang.
func freeze(s *story, c *command, _ say) error {
	name := nodeName(c)
	err := s.freeze(name, c.option("at", "answer"), c.option("uid", ""))
	if err == nil {
		s.nodes[name].alive = c.option("alive", "") == "yes"
	}
	return err
}

func thaw(s *story, c *command, _ say) error { return s.thaw(nodeName(c)) }

// crash: crash [NODE] [at=call|answer|question|reply] [uid=]. Without a point it dies at rest, or frozen.
func crash(s *story, c *command, _ say) error {
	name, at := nodeName(c), c.option("at", "")
	if at != "" {
		if err := s.freeze(name, at, c.option("uid", "")); err != nil {
			return err
		}
	}
	n := s.nodes[name]
	if n == nil {
		return fmt.Errorf("there is no node %s", name)
	}
	n.die()
	return nil
}

// leave: leave [NODE]. The node stops as told: a call in which it is frozen is cut off, and it hands back all that it
// has.
func leave(s *story, c *command, _ say) error {
	n := s.nodes[nodeName(c)]
	if n == nil || !n.alive && n.ended == nil {
		return fmt.Errorf("there is no such node")
	}
	n.die()
	me := pg.Node{ID: n.id, Epoch: 1}
	if _, err := n.store.GiveUpAll(s.ctx, me); err != nil {
		return err
	}
	return n.store.Leave(s.ctx, me)
}

// sweep: sweep [NODE]. The node buries the dead, releases what they had, and tidies up.
func sweep(s *story, c *command, _ say) error {
	n, err := s.node(nodeName(c))
	if err != nil {
		return err
	}
	if err := n.store.Refresh(s.ctx); err != nil { // as every node does once a second
		return err
	}
	return n.engine.SweepOnce(s.ctx)
}
