// Package peers stores the other installations that a context exchanges messages with.
//
// # Words
//
//   - peer: another installation, under the name that this context has for it. Both ends know one secret.
//   - door: the paths below /contexts/{context}/peers/{peer} that the peer calls. The URL of a peer is that of its door
//     for this context, so it ends with what the other end calls the two.
//   - installation id: names a database of Postern for good. It stands in what is signed, so that a call which one
//     installation has had is none at another.
//   - met: the peer has answered a call under a secret of its own, and its installation id was kept.
//
// # Tables
//
// peer and peer_secret.
//
// # Lock order
//
// One row of peer, and behind it that of its dispatcher.
//
// # Failures
//
//   - A secret is changed at one end: calls are refused there (401), which blocks what waits, and it goes on once both
//     ends have the secret. A rotation keeps the one before it good for a time, so that nothing waits, and one that is
//     made again keeps those before the first.
//   - A process dies between the removal of a peer and the end of what that has: a look ends it.
//   - A URL leads to another installation than it did: nothing is sent there until somebody puts the URL or the secret
//     anew.
package peers
