// Package work is what a process does that dispatches: it claims queues, calls workers, settles what
// they answer, and sweeps up after processes that died. Every decision is internal/sequencer's and every
// write internal/pg's; here is only who does what when.
//
// One Engine is one node. Its goroutines are:
//
//   - claim: whenever this process made work ready or a call ends, and once a second, leases ready queues
//     and starts a flight for each; a job of River's does it, and a loop where there is none;
//   - a flight per leased queue: call, decide, settle, go on with what the settle hands back;
//   - compare: reads which queues are this node's by their rows, once a minute and after what went wrong, and hands back those that
//     no flight has;
//   - timers: delays that ended, outcomes to ask about, inclusion to poll;
//   - drain: moves what applications submitted by SQL into its queues;
//   - tick: ticks the processors whose time has come, and brings on what they execute;
//   - heartbeat: renews the node's leases, and buries and releases dead nodes;
//   - River's workers, which claim, and sweep periodically. Losing, doubling or delaying any River job costs
//     latency, never correctness.
//
// A node may call workers only while it trusts its leases: while its own clock says that the last
// heartbeat that succeeded began less than TTL minus a margin ago.
package work
