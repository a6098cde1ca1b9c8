// Package devnetworker is the worker of the devnet: it speaks the worker contract (S2.7), signs with the keys of its
// keystore, and submits to a ledger (internal/devnet) over HTTP. It is asked by dispatches, questions and hooks, and
// sends signed transactions. It writes each of them to its journal before it sends it.
//
// It promises this, also over its own kill -9 and a ledger that does not answer, drops or reorgs:
//
//   - A token is executed once, and answered alike ever after. Resent, the same bytes go out again.
//   - A fence lower than one seen on the same line is refused with 409, and a call that waited while a
//     higher one came executes nothing.
//   - All attempts of a transaction share one nonce until that nonce is used for good by one of them that
//     failed, or by something else: two of them can never both do well. A retry replaces what is pending
//     with a higher fee (S2.11), and says so if it is in a block already.
//   - A transaction that failed in its block counts as pending until its block is final, since a reorg
//     could still let it do well.
//   - Next nonces are the ledger's, asked under a lock per account, so that they follow it up and down. A transaction
//     that was given up (on-failure, S2.12) and is still in the pool is replaced by one without calls, so that it
//     cannot happen after all.
//
// One worker at a time may use a data directory; two that share keys are not kept apart.
//
// Errors (S2.8): a ledger that does not answer is blocked, or ambiguous where the transaction may have
// arrived (HTTP 503, 504); an account without key or money on the ledger, ACCOUNT_NOT_FOUND, and
// insufficient funds are rejected (code 500); data that cannot be read is rejected with
// PREPARE_TRANSACTION_FAILED.
package devnetworker
