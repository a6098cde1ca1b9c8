// Package watch gives each wait for PostgreSQL a deadline of the client, without taking a slow server for a dead one.
//
// A connection whose answers never come looks like one whose statement takes long. So the watch asks after each wait
// that has taken a second, on a connection that is opened for that: does the server still work on it? If it does, the
// wait goes on: the server's own timeouts end it. If the server is done with it, or has never heard of it, and nothing
// comes within a moment after that, then the connection is dead, and is closed. Where no new connection can be opened
// either, a wait ends some seconds after the server's own timeout would have ended it. So a slow database loses no
// connection, however many wait.
//
// Only who waits can be kept waiting: a connection is looked at while its client reads an answer or writes, not while
// the client computes. A long text moves as long as the other side takes any part of it. Behind a proxy with buffers of
// megabytes and a narrow network the watch cannot see that, and may close a connection that is only slow.
//
// A wait is ended by closing the socket, and by nothing else: a cancel request, as pgx sends one, would end a commit's
// wait for its synchronous standby, and the commit would be acknowledged without it. The socket is reset, so that bytes
// that were sent and have not arrived never do.
//
// Connections that rest in a pool are asked every second or two, in an order that has the one which was used last be
// used next, and those that listen by Notification. New connections are
// opened a few at a time, and after one that could not be opened there is a pause, with chance in it.
package watch
