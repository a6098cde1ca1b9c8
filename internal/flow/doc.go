// Package flow decides what becomes of jobs, of their tries by runners, and of flows of jobs. It does no I/O and knows
// no clock: time comes in as an argument.
//
// A job is a script that a runner executes. It is carried by one transaction of the core, of type job.<script type>,
// whose worker is built in: its dispatch offers the job to runners, what a runner says at the end is its inclusion or
// its failure. Retries, dependencies and levers are those of the transaction.
//
//   - job: a script with its limits. It has one status, and at most one recorded result.
//   - try: one attempt at a job, offered under the token of its transaction. A runner holds it under a fence.
//   - runner: a process that takes tries of some script types, runs scripts and tells how they ended.
//   - lapse: the runner that held a try was silent for longer than its ttl. Another one is handed the same token.
//   - need: a prerequisite of a job, by a name. It is met when somebody says so, until its deadline.
//   - lane: tries that wait for the same kind of runner.
package flow
