package ui

// noun is a kind of thing that has a list and a page for each: the table below says what is its own.
type noun struct {
	name     string // of its list, in the API and here
	question string
	id       string // the member that its page is called by
	columns  []column
	parts    []part
	flat     bool // it has no page for each
}

// column is a member of the things of a list, with dots for members of members.
type column struct{ head, member string }

// part is a list that belongs to one thing.
type part struct {
	name    string
	id      string // "": its things have no pages
	columns []column
}

// nouns are in the order of the navigation, behind now and transactions.
var nouns = []noun{
	{
		name:     "queues",
		question: "Who waits behind whom?",
		id:       "name",
		columns: cols("queue", "name", "state", "state", "depth", "depth", "head", "head.state", "for", "head.since",
			"attempt", "attempt", "sender", "sender", "next", "next_at", "paused", "paused"),
	},
	{
		name:     "senders",
		question: "Which signer is held, by which queue, until when?",
		id:       "account",
		columns: cols("account", "account", "pool", "pool", "state", "state", "queue", "queue", "since", "bound_since",
			"blocked until", "blocked_until", "because", "block_reason", "paused", "paused"),
	},
	{
		name:     "pools",
		question: "Is a sender free?",
		id:       "name",
		columns: cols("pool", "name", "free", "free", "bound", "bound", "blocked", "blocked", "waiting", "waiting",
			"paused", "paused"),
	},
	{
		name:     "dispatchers",
		question: "How is a type sent, and what was refused last?",
		id:       "type",
		columns: cols("type", "type", "worker", "worker_url", "pool", "pool", "gate until", "gate.until",
			"because", "gate.reason", "paused", "paused"),
	},
	{
		name:     "processors",
		question: "Which batch is executed, and which wait?",
		id:       "name",
		columns: cols("processor", "name", "state", "state", "executing", "executing", "high", "high", "med", "med",
			"callbacks", "pending_callbacks", "height", "height"),
		parts: []part{{"batches", "id", cols("batch", "id", "state", "state", "priority", "priority", "by", "initiator",
			"retries", "retries", "created", "created_at")}},
	},
	{
		name:     "authorizations",
		question: "Who may send which batches?",
		id:       "label",
		columns: cols("label", "label", "state", "state", "running", "running", "spent", "spent",
			"priority", "priority", "ends", "ends_at"),
	},
	{
		name:     "sources",
		question: "Are events still read?",
		id:       "name",
		columns: cols("source", "name", "kind", "kind", "state", "state", "lag", "lag_seconds", "polled", "polled_at",
			"failures", "failures", "error", "last_error"),
	},
	{
		name:     "events",
		question: "What came of an event?",
		id:       "id",
		columns: cols("event", "id", "source", "source", "status", "status", "tool", "tool", "received", "created_at",
			"error", "error"),
	},
	{
		name:     "tools",
		question: "Is a tool ready?",
		id:       "fqn",
		columns: cols("tool", "fqn", "url", "url", "health", "health.state", "read", "read_at",
			"error", "refresh_error"),
	},
	{
		name:     "channels",
		question: "Do results and messages get through?",
		id:       "name",
		columns: cols("channel", "name", "kind", "kind", "state", "state", "queued", "queued", "offered", "offered",
			"active", "active", "dropped", "dropped", "blocked until", "blocked_until"),
		parts: []part{{"messages", "", cols("message", "id", "set", "set", "retries", "retries", "error", "error",
			"updated", "updated_at")}},
	},
	{
		name:     "flows",
		question: "Which jobs of a flow run, and which wait?",
		id:       "id",
		columns: cols("flow", "id", "ref", "ref", "status", "status", "finished", "finished_count", "of", "job_count",
			"started", "started_at", "ended", "ended_at", "error", "error"),
	},
	{
		name:     "jobs",
		question: "Where does a job run, and how did it end?",
		id:       "id",
		columns: cols("job", "id", "ref", "ref", "flow", "flow", "status", "status", "runner", "runner",
			"tries", "tries", "exit code", "exit_code", "started", "started_at", "error", "error"),
	},
	{
		name:     "runners",
		question: "Which runner takes jobs?",
		id:       "name",
		columns: cols("runner", "name", "type", "type", "state", "state", "held", "held", "slots", "slots",
			"seen", "seen_at", "missing", "missing"),
	},
	{
		name:     "messages",
		question: "Was a message taken, and answered?",
		id:       "id",
		columns: cols("message", "id", "type", "message_type", "from", "from", "to", "to.context", "status", "status",
			"sent", "created_at", "deadline", "deadline", "error", "error"),
	},
	{
		name:     "peers",
		question: "Which other installations are known, and which refuse calls?",
		id:       "name",
		columns: cols("peer", "name", "url", "url", "installation", "installation", "met", "met_at",
			"refuses since", "refuses.since", "code", "refuses.code", "why", "refuses.message"),
	},
	{
		name:     "domains",
		question: "Who coordinates, who is silent, and what do intents wait for?",
		id:       "name",
		columns: cols("domain", "name", "state", "state", "mode", "mode", "as a coordinator", "coordinator",
			"as an originator", "originator", "height", "height", "service", "service_url"),
		parts: []part{{"intents", "id", cols("intent", "id", "uid", "uid", "party", "party", "state", "state",
			"since", "since", "permit", "permit", "parked", "parked", "receipt", "receipt.outcome",
			"text", "receipt.text")}},
	},
	{
		name:     "subscriptions",
		question: "Who is told, and since when not?",
		id:       "name",
		columns: cols("subscription", "name", "kind", "kind", "enabled", "enabled", "url", "url", "pending", "pending",
			"failing since", "failing_since"),
	},
	{
		name:     "deliveries",
		question: "What was told to whom?",
		id:       "id",
		columns: cols("delivery", "id", "state", "state", "event", "event", "subscription", "subscription",
			"transaction", "transaction", "tries", "tries", "next", "next_at", "error", "error"),
	},
	{
		name:     "nodes",
		question: "Which processes work, and what do they hold?",
		id:       "name",
		columns: cols("node", "name", "state", "state", "draining", "draining", "heartbeat", "heartbeat_at",
			"TTL", "ttl", "queues", "queues", "calls", "calls", "of", "concurrency", "version", "version"),
	},
	{
		name:     "audit",
		question: "Who did what, and why?",
		flat:     true,
		columns: cols("when", "at", "actor", "actor", "via", "via", "action", "action", "object", "object",
			"reason", "reason"),
	},
	{
		name:     "contexts",
		question: "Which tenants are there?",
		id:       "name",
		columns:  cols("context", "name", "paused", "paused", "draining", "draining", "depth", "max_depth"),
	},
}

// cols makes columns of heads and members by turns.
func cols(list ...string) (c []column) {
	for i := 0; i+1 < len(list); i += 2 {
		c = append(c, column{list[i], list[i+1]})
	}
	return c
}

func nounOf(name string) *noun {
	for i := range nouns {
		if nouns[i].name == name {
			return &nouns[i]
		}
	}
	return nil
}
