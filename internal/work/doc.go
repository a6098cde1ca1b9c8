// Package work is what a process does that dispatches: it claims queues, calls workers, settles what
// they answer, and sweeps up after processes that died. Every decision is internal/sequencer's and every
// write internal/pg's; here is only who does what when.
//
// One Engine is one node: the core, and the systems that internal/app adds to it (see System). The goroutines of the
// core are:
//
//   - claim: whenever this process made work ready or a call ends, and once a second, leases ready queues
//     and starts a flight for each; a job of River's does it, and a loop where there is none;
//   - a flight per leased queue: call, decide, settle, go on with what the settle hands back;
//   - compare: reads which queues are this node's by their rows, once a minute and after what went wrong, and hands
//     back those that no flight has;
//   - timers: delays that ended, outcomes to ask about, inclusion to poll;
//   - drain: moves what applications submitted by SQL into its queues;
//   - heartbeat: renews the node's leases, and buries and releases dead nodes;
//   - River's workers, which claim, and sweep periodically. Losing, doubling or delaying any River job costs
//     latency, never correctness.
//
// Each system has its type in the file of its name, and there what it runs: Deliveries, Events, Batches, Channels.
// What a process does by itself has one shape, Loop; what River has one process do has another, Job.
//
// A node may call workers only while it trusts its leases: while its own clock says that the last
// heartbeat that succeeded began less than TTL minus a margin ago.
package work
