// Package pgworld is the world of tests of stores: a database of its own, a clock that only the test moves, and the
// deeds and looks that tests of several packages share. It takes a test, and gives a World.
package pgworld
