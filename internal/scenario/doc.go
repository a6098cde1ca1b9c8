// Package scenario runs stories: text files in testdata/scenario that say, in the words of a seed, what is
// posted, what the worker answers and how time passes, and what is seen then. Test support: only tests
// import it.
//
// A story is a list of paragraphs. A paragraph is commands, one a line, and after "----" what they say
// together; -update writes that part anew, and its diff is the review.
//
//	# S2.4: one in flight per queue
//	post queue=claim-7 a b
//	answer * error:20203
//	round
//	rows
//	----
//	claim-7 1 a RETRY/DELAY attempt=1 retries=1 code=20203 next=5s
//	claim-7 2 b WAITING/FREE
//
// Everything is real but the time: PostgreSQL, the engine of each node, HTTP to a fake worker. Time
// passes by "later" alone (and a millisecond a command, so that nothing is simultaneous); nodes move by
// "round" alone. A command that is refused says so in its output. After every command that can change
// a row the invariants of Violations are checked. The commands stand in commands.go.
package scenario
