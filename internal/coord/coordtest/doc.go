// Package coordtest is the simulation of domains: two to five nodes, a wire that loses, doubles, delays, reorders and
// cuts one way, nodes that die, freeze and lag in height, clocks that differ, stores that go back in time, and a ledger
// with reorgs. One number draws one schedule, which is the same each time. Check says which promise a schedule broke.
//
// A schedule has two parts. In the first all of that happens; then the wires and the nodes are whole again, and each
// intent must get its receipt.
package coordtest
