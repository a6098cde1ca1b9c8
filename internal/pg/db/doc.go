// Package db is below all stores: the pool, the SQL transaction, the joint transaction, the clock, errors, statements
// for one row or many, and the audit row.
//
// # Words
//
//   - transaction (Txn): one SQL transaction, whose BEGIN travels with its first batch and whose COMMIT with its last.
//   - joint: one SQL transaction that several changes join; a dry run is one that is rolled back.
//   - mend: to make a thing that a transaction lacked (a day, a lane, a name), so that the transaction runs again.
//   - writer: a place to write. There are fewer than connections, so that reads go on while all commits wait.
//   - By: the actor of a change, for the audit and for permissions.
//   - witness: remembers the newest acknowledged commits, and looks for them on each new connection.
//
// # Tables
//
// audit. It makes the partitions of each day, of the tables that their packages register.
//
// # Lock order
//
// To make the partitions of a day it locks the row of identity, in an SQL transaction of its own. It takes no other
// lock; its callers keep the order of the core's page (internal/pg).
//
// # Failures
//
//   - Deadlock or serialization failure: run again, up to eight times, then "overloaded"; nothing was done.
//   - A statement is refused by a constraint: the fault that its name is registered for.
//   - A commit without an answer, or with FATAL or PANIC: "commit_unknown".
//   - No place to write for ten seconds: "overloaded"; nothing was done.
//   - No connection, or the server ends the session before a commit: "database_unavailable"; nothing was done.
package db
