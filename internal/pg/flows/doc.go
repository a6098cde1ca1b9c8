// Package flows stores jobs, their tries, and the runners that execute them. Each job is carried by a transaction of
// the core. The decisions are those of the package flow.
//
// # Words
//
//   - job: a script with its limits. Its row knows its transaction from the commit that accepts that.
//   - try: one attempt at a job, offered under the token of its transaction. Its id is the hash that the core asks
//     about.
//   - offer: a try that no runner holds. It stands in the lane of its script type, or in that of a topic.
//   - hold: a try that a runner has, under a fence and the epoch of the runner.
//   - epoch: raised each time that a process registers as a runner. What an older one held is offered anew.
//   - lapse: a hold that was taken back, since its runner was silent for longer than its ttl, or began anew.
//   - due: a job whose transaction has ended, which the job does not know yet.
//   - late: what a runner says of a try that it holds no more.
//
// # Tables
//
// runner, flow, job, job_edge, job_need, job_due, job_try, try_late, try_log and flow_step.
//
// # Lock order
//
// Rows of queues, then a runner, then its tries, then flows, then jobs in the order of their ids, then prerequisites.
// The commit that accepts or ends a transaction writes rows of jobs behind the locks of queues. A claim locks its
// runner, skips tries that are locked, and waits for their jobs. The end of a try (finish, fail) locks that try alone,
// and no holder of a job's lock waits for a try: an end or a stop of a job skips locked tries, and the next look finds
// those that were skipped.
//
// # Failures
//
//   - A process dies between the row of a job and its post: the next look posts it under the same uid.
//   - A process dies between a try's end and the core's poll: the poll reads a row that does not change any more.
//   - A process dies between the end of a transaction and that of its job: job_due has it, from the commit of that end.
//   - A runner dies: the sweep offers its tries to others, one fence higher, under the same token, and consumes no
//     retry. The third lapse of a try is its failure.
//   - The answer to a claim is lost: the runner does not name the try in two calls, and is handed it again.
//   - A runner sleeps, and wakes up when its try is another's: what it says has an old fence, changes nothing, and is
//     kept in try_late.
package flows
