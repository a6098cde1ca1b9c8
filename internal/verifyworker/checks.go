package verifyworker

import "context"

// check is one promise: its name, what breaking it costs, whether it stands on an accepted dispatch, and
// how it is tried.
type check struct {
	name  string
	cost  string
	needs bool
	run   func(*verifier, context.Context) finding
}

// checks are all of them, in the order of the report. The last ones look at what the others have seen.
var checks = []check{
	{"health", "Whatever starts or watches the worker takes it for dead, and restarts it in the middle of calls.", false, (*verifier).health},
	{"dispatch", "Nothing goes out: transactions of this type wait, are retried, or end FAILED.", false, (*verifier).dispatches},
	{"resend", "Each time an answer is lost the attempt is sent again: it happens twice, or two hashes stand for one transaction.", true, (*verifier).resend},
	{"resend at once", "Two nodes that send one attempt while a queue changes hands make it happen twice.", true, (*verifier).resendAtOnce},
	{"distinct hashes", "Two transactions are watched as one: the second is taken for included when the first is.", true, (*verifier).distinct},
	{"side by side", "Many queues go out at once: under load calls break off, and each of them costs a question before it can go on.", true, (*verifier).sideBySide},
	{"status by token", "After a lost answer, a restart or a failover nobody can find out what became of the call: it is sent twice, or its queue stands still.", true, (*verifier).statusByToken},
	{"status by hash", "Postern never sees it arrive: after the inclusion deadline it is retried although it is there.", true, (*verifier).statusByHash},
	{"status of the unknown", "A call that never arrived is taken for one that is under way: its queue waits for ever, or goes on without it.", true, (*verifier).unknown},
	{"status batch", "Statuses are read for the wrong transactions: one ends DONE because another is included.", true, (*verifier).batch},
	{"inclusion", "It ends FAILED, or is retried until its retries are used up, although the worker took it.", true, (*verifier).inclusion},
	{"replacement", "A retry after a timeout happens besides the attempt before it: paid twice.", true, (*verifier).replacement},
	{"lower fence", "A node that was frozen and wakes up late sends what others have sent, replaced or cancelled meanwhile.", true, (*verifier).lowerFence},
	{"other fences", "After the first failover the worker refuses the queue's rightful owner: the queue stands still.", true, (*verifier).otherFences},
	{"hooks", "Hooks are repeated for 72 hours and then given up: what hangs on the end of a transaction never happens.", true, (*verifier).hooks},
	{"max-retries", "The worker's wish is not understood: attempts are repeated as often as the default says.", false, (*verifier).maxRetries},
	{"large data", "A transaction with much data is accepted by Postern and then never goes out.", true, (*verifier).largeData},
	{"garbage", "A stray request or a scanner executes something, or takes the worker down with all calls in flight.", true, (*verifier).garbage},
	{"oversized", "One caller that sends without end fills the worker's memory.", true, (*verifier).oversized},
	{"signature", "Whoever reaches the worker over the network has it do what he likes.", true, (*verifier).signature},
	{"errors", "An error without its class is guessed at: what can never be done is retried, or what could be done later fails for good.", true, (*verifier).errors},
	{"shape of answers", "What Postern cannot read is ambiguous: each such answer costs a question and a retry, and may be held for an operator.", false, (*verifier).shape},
}
