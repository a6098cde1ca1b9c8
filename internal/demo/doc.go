// Package demo posts the sample transactions to a Postern that runs, as any client would: over HTTP and
// through nothing else. In go the address of the API, the addresses of a worker and of the devnet behind it, and a name
// for the run; out come lines or a table while it lasts, and a Summary that says whether every sample ended as its file
// says it should, and whether the ledger and its balances agree.
package demo
