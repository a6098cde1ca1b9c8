// Package bench measures Postern as its users meet it: whole processes over a durable database, over HTTP
// where there is HTTP, and with every run checked by SQL over the tables. A run whose transactions were
// lost, doubled or out of order prints no rate.
//
// A scenario (scenario.go) makes trials: each begins with the same rows, lets a process go, waits for the
// last outcome, and counts what that cost. The summary of a scenario's trials is one JSON line (result.go).
// Where two things are compared their trials alternate, so that what else the machine does meets both.
//
// The program that uses this package starts the processes (Launch): it knows how to build them, and this package knows
// only what they store.
package bench
