// Package wire tells what has become of a connection since it was last used, without a word on it.
package wire

// State is what can be seen of a connection.
type State int

const (
	Unknown State = iota // the system does not say
	Quiet                // it is there, and nothing has come
	Talking              // something has come that was not read
	Gone                 // the other side has closed
)
