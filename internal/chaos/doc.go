// Package chaos kills real processes in the middle of real work and looks at what is left: every
// transaction ends, in order, once, within the lease TTL and a second.
package chaos
