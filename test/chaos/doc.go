// Command chaos puts Postern through faults and checks afterwards that every promise was kept.
//
//	make chaos ARGS="--seconds 60 --seed 1"
//
// It starts a PostgreSQL with durable settings (and a synchronous standby, where a failover is to come), a process
// that serves, one that serves and works, and three that work, each behind a proxy of its own, and a worker that
// writes each call to a file and syncs it, behind a proxy as the API is. A client posts at a steady rate, whatever is answered, and logs what it
// asks and is told. A schedule, which the seed fixes before the start, breaks things meanwhile. Then everything is
// healed, and once it had time to settle, a checker reads the logs of client and worker and the database, and prints
// one line of JSON.
//
//   - schedule.go, faults*.go, failover.go, restore.go: what breaks.
//   - proxy.go: what stands between a process and PostgreSQL; it reads along, to find commits. ways.go: the same
//     between clients, processes and their worker.
//   - flows.go, flows_check.go: flows of jobs as the load, with real runners (-load flows).
//   - peers.go, line.go, sign.go, peers_check.go: two installations with a line between them (-load peers).
//   - systems.go, systems_check.go: batches and events in two contexts (-load systems).
//   - domains.go, tokens.go, domains_check.go: three installations that share a domain (-load domains).
//   - check.go, check_rows.go, standing.go: what has to be true afterwards; look.go: what has not ended, and what
//     stands still a minute
//     behind the last fault; measure.go: how long it took.
//   - twins.go: programs with a planted fault, which it has to find.
//
// It is a module of its own and shares no code with the product: what is wrong there is not wrong here for the same
// reason.
package main
