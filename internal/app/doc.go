// Package app builds Postern from its configuration, and nothing is wired anywhere else. In go a Config
// (flags, then environment, then defaults: Load) and what the process is to be (serve, work, both); out
// comes an App with Run and Close, which a test can start whole.
//
// A stop goes in one order: readiness drops, and nothing more is claimed; for the drain delay everything is still answered,
// posts too, until whoever sends requests has found another process; then no post is taken any more, what is not in a call
// has been handed back and calls get their grace, and the listener and the database are closed.
package app
