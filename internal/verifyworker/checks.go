package verifyworker

import "context"

// check is one promise of the contract, and how it is tried.
type check struct {
	name      string
	paragraph string // of docs/worker-contract.md
	cost      string // the cost of breaking it
	needs     bool   // it stands on an accepted dispatch
	run       func(*verifier, context.Context) finding
}

// checks are all of them, in the order of the report. The last ones look at what the others have seen.
var checks = []check{
	{
		name:      "health",
		paragraph: "9.4",
		cost: "Whatever starts or watches the worker takes it for dead, and restarts it in the middle " +
			"of calls.",
		run: (*verifier).health,
	},
	{
		name:      "dispatch",
		paragraph: "4.1",
		cost:      "Nothing goes out: transactions of this type wait, are retried, or end FAILED.",
		run:       (*verifier).dispatches,
	},
	{
		name:      "resend",
		paragraph: "6.1",
		cost: "Each time an answer is lost the attempt is sent again: it happens twice, or two hashes " +
			"stand for one transaction.",
		needs: true,
		run:   (*verifier).resend,
	},
	{
		name:      "resend at once",
		paragraph: "6.3",
		cost:      "Two nodes that send one attempt while a queue changes hands make it happen twice.",
		needs:     true,
		run:       (*verifier).resendAtOnce,
	},
	{
		name:      "distinct hashes",
		paragraph: "4.2",
		cost:      "Two transactions are watched as one: the second is taken for included when the first is.",
		needs:     true,
		run:       (*verifier).distinct,
	},
	{
		name:      "side by side",
		paragraph: "1.6",
		cost: "Many queues go out at once: under load calls break off, and each of them costs a " +
			"question before it can go on.",
		needs: true,
		run:   (*verifier).sideBySide,
	},
	{
		name:      "status by token",
		paragraph: "8.2",
		cost: "After a lost answer, a restart or a failover it cannot be found out what became of the " +
			"call: it is sent twice, or its queue stands still.",
		needs: true,
		run:   (*verifier).statusByToken,
	},
	{
		name:      "status by hash",
		paragraph: "8.1",
		cost: "Postern never sees it arrive: after the inclusion deadline it is retried although it is " +
			"there.",
		needs: true,
		run:   (*verifier).statusByHash,
	},
	{
		name:      "status of the unknown",
		paragraph: "8.3",
		cost: "A call that never arrived is taken for one that is under way: its queue waits for ever, " +
			"or goes on without it.",
		needs: true,
		run:   (*verifier).unknown,
	},
	{
		name:      "status batch",
		paragraph: "8.6",
		cost:      "Statuses are read for the wrong transactions: one ends DONE because another is included.",
		needs:     true,
		run:       (*verifier).batch,
	},
	{
		name:      "inclusion",
		paragraph: "8.1",
		cost:      "It ends FAILED, or is retried until its retries are used up, although the worker took it.",
		needs:     true,
		run:       (*verifier).inclusion,
	},
	{
		name:      "replacement",
		paragraph: "6.5",
		cost:      "A retry after a timeout happens besides the attempt before it: paid twice.",
		needs:     true,
		run:       (*verifier).replacement,
	},
	{
		name:      "lower fence",
		paragraph: "7.2",
		cost: "A node that was frozen and wakes up late sends what others have sent, replaced or " +
			"cancelled meanwhile.",
		needs: true,
		run:   (*verifier).lowerFence,
	},
	{
		name:      "other fences",
		paragraph: "7.1",
		cost: "After the first failover, or beside a queue of the same name in another context, the worker " +
			"refuses the rightful owner: the queue stands still.",
		needs: true,
		run:   (*verifier).otherFences,
	},
	{
		name:      "hooks",
		paragraph: "9.2",
		cost: "Hooks are repeated for 72 hours and then given up: what hangs on the end of a " +
			"transaction never happens.",
		needs: true,
		run:   (*verifier).hooks,
	},
	{
		name:      "max-retries",
		paragraph: "9.3",
		cost:      "The worker's wish is not understood: attempts are repeated as often as the default says.",
		run:       (*verifier).maxRetries,
	},
	{
		name:      "large data",
		paragraph: "1.5",
		cost:      "A transaction with much data is accepted by Postern and then never goes out.",
		needs:     true,
		run:       (*verifier).largeData,
	},
	{
		name:      "garbage",
		paragraph: "1.4",
		cost: "A stray request or a scanner executes something, or takes the worker down with all " +
			"calls in flight.",
		needs: true,
		run:   (*verifier).garbage,
	},
	{
		name:      "oversized",
		paragraph: "1.5",
		cost:      "One caller that sends without end fills the worker's memory.",
		needs:     true,
		run:       (*verifier).oversized,
	},
	{
		name:      "signature",
		paragraph: "10.3",
		cost:      "All who reach the worker over the network can have it do what they like.",
		needs:     true,
		run:       (*verifier).signature,
	},
	{
		name:      "errors",
		paragraph: "5.8",
		cost: "An error without its class is guessed at: what can never be done is retried, or what " +
			"could be done later fails for good.",
		needs: true,
		run:   (*verifier).errors,
	},
	{
		name:      "shape of answers",
		paragraph: "4.3",
		cost: "What Postern cannot read is ambiguous: each such answer costs a question and a retry, " +
			"and may be held for an operator.",
		run: (*verifier).shape,
	},
}
