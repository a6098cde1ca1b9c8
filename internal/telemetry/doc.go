// Package telemetry is where numbers and spans leave a process: metrics for Prometheus, in a registry of its
// own, and traces for an OpenTelemetry collector, if there is one.
//
// A package that knows a fact calls a method of *Metrics with it. A nil *Metrics takes everything and keeps nothing, so
// that no caller asks whether there is one. No label holds a value that a client can choose freely: types are those of
// dispatchers, and past maxTypes of them they are counted together; states are those of the machine tables; routes are
// patterns. Ids, uids and names of queues are in none.
package telemetry
