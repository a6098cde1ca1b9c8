// Package remotetest stands in for workers in tests. Fake is a worker on a real port that does what a
// test tells it to, well or badly, and keeps a log of every call. Exercise is the conformance suite of
// the worker contract (S2.7): the fake passes it, the worker of the devnet passes it, and anyone's worker
// should.
//
// Nothing here sleeps: a test waits for a call that it can name (Fake.WaitCall), and a reply that hangs
// does so until the caller leaves or the fake closes.
package remotetest
