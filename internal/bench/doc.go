// Package bench measures Postern as its users meet it: over HTTP, with a durable database, and with every
// run checked. A run whose transactions were lost, doubled or out of order prints no rate.
package bench
