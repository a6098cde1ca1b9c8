// Package ledger is the devnet itself: state, pool, blocks, reorgs, event log, the journal they are rebuilt
// from, and their door over HTTP (the calls and rules stand in internal/devnet). In go signed transactions
// and wishes for trouble; out come answers, and a journal that makes the same state again.
//
// The journal holds decisions, not results: which transaction came, which ones a block took, what was
// dropped, how deep a reorg went. Whatever chance decides is drawn before it is written, so a replay draws
// nothing. Every change goes to the journal and to memory under one lock; an answer waits for the fsync.
package ledger
