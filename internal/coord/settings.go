package coord

import (
	"slices"
	"time"
)

// Mode says how the coordinator of a domain is chosen.
type Mode string

// The modes: by the priority list of a range of blocks, always the named node, always the node itself.
const (
	Endorser Mode = "ENDORSER"
	Static   Mode = "STATIC"
	Sender   Mode = "SENDER"
)

// Once says what keeps an intent from being carried out twice when the holder of its permit is lost.
type Once string

// Hold waits for the holder, or for an operator. Ledger relies on a ledger that refuses the second public transaction.
const (
	Hold   Once = "hold"
	Ledger Once = "ledger"
)

// Settings are those of a domain (S3.5). Counts of grace are in heartbeat intervals.
type Settings struct {
	Nodes       []string // names of the installations, in any order
	Mode        Mode
	Static      string // of mode STATIC: the node, also as party@node
	Once        Once
	KeepsActive bool // a live coordinator keeps its seat over boundaries of ranges
	Look        bool // the domain's service says what the ledger has

	HeartbeatInterval, RequestTimeout, StateTimeout, DelegateTimeout, FlushGrace time.Duration
	InactiveGrace, ClosingGrace, FinalGrace, MinTenure                           int

	BlockHeightTolerance, BlockRange                                                 int64
	MaxInflight, MaxDispatchAhead, FirstRoom                                         int
	AssembleErrorThreshold, EndorseRejectThreshold, BaseLedgerRevertThreshold, Batch int
}

// Defaults are the settings of a domain whose owner says nothing else.
func Defaults(nodes ...string) Settings {
	return Settings{
		Nodes:                     nodes,
		Mode:                      Endorser,
		Once:                      Hold,
		HeartbeatInterval:         10 * time.Second,
		RequestTimeout:            3 * time.Second,
		StateTimeout:              10 * time.Second,
		DelegateTimeout:           5 * time.Second,
		FlushGrace:                time.Minute,
		InactiveGrace:             2,
		ClosingGrace:              2,
		FinalGrace:                2,
		MinTenure:                 5,
		BlockHeightTolerance:      5,
		BlockRange:                100,
		MaxInflight:               500,
		FirstRoom:                 32,
		MaxDispatchAhead:          50,
		AssembleErrorThreshold:    3,
		EndorseRejectThreshold:    3,
		BaseLedgerRevertThreshold: 3,
		Batch:                     100,
	}
}

// Clamped returns the settings with each that is out of its bounds at the next of these, and the names of those. The
// upper ones keep sums and products of times and heights from running over.
func (s Settings) Clamped() (Settings, []string) {
	var moved []string
	s.Nodes = slices.Compact(slices.Sorted(slices.Values(s.Nodes)))
	lasts := func(name string, have *time.Duration, least time.Duration) {
		moved = clamp(moved, name, have, least, 7*24*time.Hour)
	}
	lasts("heartbeat_interval", &s.HeartbeatInterval, time.Second)
	lasts("request_timeout", &s.RequestTimeout, time.Second)
	lasts("state_timeout", &s.StateTimeout, time.Second)
	lasts("delegate_timeout", &s.DelegateTimeout, 100*time.Millisecond)
	lasts("flush_grace", &s.FlushGrace, 5*time.Second)
	beats := func(name string, have *int, least int) { moved = clamp(moved, name, have, least, 10_000) }
	beats("inactive_grace", &s.InactiveGrace, 1)
	beats("closing_grace", &s.ClosingGrace, 1)
	beats("final_grace", &s.FinalGrace, 1)
	beats("min_tenure", &s.MinTenure, 0)
	count := func(name string, have *int, least int) { moved = clamp(moved, name, have, least, 1_000_000) }
	count("max_inflight", &s.MaxInflight, 1)
	count("max_dispatch_ahead", &s.MaxDispatchAhead, 1)
	count("assemble_error_threshold", &s.AssembleErrorThreshold, 0)
	count("endorse_reject_threshold", &s.EndorseRejectThreshold, 0)
	count("base_ledger_revert_threshold", &s.BaseLedgerRevertThreshold, 0)
	count("batch", &s.Batch, 1)
	moved = clamp(moved, "block_height_tolerance", &s.BlockHeightTolerance, 1, 1<<40)
	return s, clamp(moved, "block_range", &s.BlockRange, 10, 1<<40)
}

// clamp puts a setting to the next of its bounds if it is out of them, and adds its name to moved then.
func clamp[T int | int64 | time.Duration](moved []string, name string, have *T, least, most T) []string {
	in := min(max(*have, least), most)
	if *have != in {
		*have, moved = in, append(moved, name)
	}
	return moved
}

// grace is how long a node may be silent before it is taken for dead.
func (s Settings) grace() time.Duration {
	return time.Duration(s.InactiveGrace) * s.HeartbeatInterval
}
