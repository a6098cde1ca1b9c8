// Package pg is the store: the statements of the hot path, and everything else that reads or writes
// PostgreSQL. Nobody above it thinks about locks or fences.
//
// # How a write works
//
// Every statement that changes a queue has one shape: lock the queue rows in the order of their ids
// (claim, wake and release skip the locked ones and so never wait), look at them and decide in Go,
// write rows and effects in one batch, commit. Under READ COMMITTED each statement has its own
// snapshot, so what is read after the lock is what the last holder of the lock committed. That is why
// there are no lost wake-ups (idle is head > tail of the locked row), no two owners (node and fence are
// in the locked row), and no stale writes (a fence that differs changes nothing).
//
// Lock order of all: queue_name, queue (by id), lane, idempotency (by key), sender, ready, timer.
// Claim, wake and release take every lock with SKIP LOCKED, so they never wait and cannot be part of a
// cycle; the others keep the order.
package pg
