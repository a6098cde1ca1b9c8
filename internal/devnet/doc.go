// Package devnet is a small ledger to submit to, for development, the demo and tests: accounts, signed transactions
// with nonces and fees, a pool, blocks, reorgs and an event log, over HTTP. It is a tool, not the product, and not a
// chain: one process makes the blocks, and only its tests check it.
//
// This package is its vocabulary, which the ledger (internal/devnet/ledger) and its clients share: transactions
// and their signatures, the answers of the calls below, and a Client for them. `postern devnet` serves it.
//
//	POST /transactions          {body, signature}               202 Status, or a Refusal; the same one again: 200
//	GET  /transactions/{hash}                                   200 Status, 404
//	POST /transactions:status   {hashes: [...]}                 200 {items: [Status]}, in their order; at most 1,000
//	GET  /accounts/{address}                                    200 Account, 404 account_not_found
//	GET  /apps/{name}                                           200 App, 404
//	GET  /blocks/{height|head}                                  200 Block, 404
//	GET  /events?cursor=&limit=                                 200 {events, next_cursor, has_more}
//	POST /faucet                {address, amount}               200 Account
//	GET, PUT /faults            Faults                          200 Faults
//	POST /reorg                 {depth: 1 or 2, lose: [hash]}   200 {returned, lost}
//	POST /blocks                                                200 Block: makes one now
//	GET  /health                                                200 Health
//
// The rules of the ledger. A transaction takes the next nonce of its account, pays its fee to the sink even when it
// fails, and does all of its calls or none (S4.6 calls that atomic). In the pool, another of the same account and nonce
// replaces it if its fee is at least a tenth higher. A reorg takes the last one or two blocks out: their transactions
// are pending again, or lost. A block three deep is final. The event log holds events of final blocks, so that no
// cursor ever goes wrong; a cursor is inclusive (S1.2): the event that it names comes again.
//
// Money is granted by the faucet at once, outside of blocks, and no reorg takes it back. Numbers of money
// are strings of digits in JSON. Everything answered is durable, but for faults, which end with the
// process.
package devnet
