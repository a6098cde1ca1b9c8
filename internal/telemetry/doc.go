// Package telemetry is where numbers and spans leave a process: metrics for Prometheus, in a registry of its
// own, and traces for an OpenTelemetry collector, if there is one.
//
// Whoever knows a fact calls a method of *Metrics with it; a nil *Metrics takes everything and keeps
// nothing, so that nobody asks whether there is one. No label holds what a client can choose freely: types
// are those of dispatchers, and past maxTypes of them they are counted together; states are those of the
// machine tables; routes are patterns. Ids, uids and names of queues are in none.
package telemetry
