// Package worker is for writing a worker of Postern in Go. You write a handler per type, and the package makes of them
// an HTTP service that speaks the worker contract. It imports nothing but the standard library. A worker can be written
// without it: examples/worker.py is a whole worker in plain Python.
//
// What the kit does, so that a handler need not:
//
//   - A token is executed once. It is kept as begun before the handler runs, and its answer is kept before it is
//     given. A caller that sends the token again gets that answer. Two calls of it at once run one handler.
//   - A call whose fence is lower than one seen on its line (Postern-Line) is refused with 409: it comes from a
//     node that woke up late, and executes nothing. A call without a line is taken with any fence.
//   - /status by token and by hash, /status:batch, /health, /max-retries, hooks, and counters (/metrics).
//   - A handler runs to its end also when the caller has left: an attempt that is cut in two is the
//     hardest one to account for. Its context ends with the deadline of the call, or with the process.
//
// The kit leaves one thing to a handler: a process can die between doing something and saying so. The token is then
// known as begun and nothing more. When it is sent again, Call.Again is set, and the handler has to look before it does
// it again. The easy way is to pass Transaction or Token on as the idempotency key of the service that the handler
// calls.
//
// A handler returns one of these, and Postern does this:
//
//	Sent(hash)   on its way: Postern asks /status by this hash until it is included or fails
//	Done(v)      all is done, with v as the result
//	Blocked      nothing was done, it cannot be now: the same attempt comes again, no retry is consumed
//	Retry        this attempt failed and left nothing behind: the next one comes after a delay
//	Rejected     it can never be done: FAILED
//	Ambiguous    it may have been done: Postern asks /status by token before it sends anything again
//	other errors and panics: ambiguous, since it is unknown how far the handler came
//
// The store decides what survives the worker's own restart. The default keeps everything in memory. That is right only
// where the target of the handler dedupes by itself; use OpenFile for all others.
package worker
