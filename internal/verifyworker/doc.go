// Package verifyworker checks a worker, in whatever language it is written, against docs/worker-contract.md
// (S2.7 to S2.12), whose paragraph each check names. In goes its URL and a type that it takes; out comes a report:
// each check is ok, failed or
// not offered, and what failed comes with what it would cost in production.
//
// It calls the worker through internal/remote, so that an answer is what Postern would take it for, and by
// hand where Postern never would: garbage, what is too large, calls that do not exist. It executes for real:
// each run sends a few dozen transactions of the type, under queues and ids that no run before has used.
package verifyworker
