// Package app builds Postern from its configuration, and no other package wires its parts. It takes a Config (flags,
// then environment, then defaults: Load) and the role of the process (serve, work, both), and gives an App with Run and
// Close, which a test can start whole.
//
// A stop goes in one order. Readiness drops, and nothing more is claimed. For the drain delay every request is still
// answered, posts too, until clients have found another process. Then no post is taken any more, queues that are not in
// a call have been handed back and calls get their grace, and the listener and the database are closed.
package app
