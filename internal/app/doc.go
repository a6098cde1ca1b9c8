// Package app builds Postern from its configuration, and nothing is wired anywhere else. In go a Config
// (flags, then environment, then defaults: Load) and what the process is to be (serve, work, both); out
// comes an App with Run and Close, which a test can start whole.
//
// A stop goes in one order: readiness drops and nothing new is accepted, then nothing more is claimed,
// then what is not in a call is handed back and calls get their grace, then the listener and the
// database are closed.
package app
