// Command chaos puts Postern through faults and checks afterwards that every promise was kept.
//
//	make chaos ARGS="--seconds 60 --seed 1"
//
// It starts a PostgreSQL with durable settings, two serve and three work processes, each behind a proxy of its own, and
// a worker that writes each call to a file and syncs it. A client posts at a steady rate, whatever is answered. A
// schedule, which the seed fixes, breaks things meanwhile. Then everything is healed, and once it had time to settle, a
// checker reads the logs of client and worker and the database, and prints one line of JSON.
//
// It is a module of its own and shares no code with the product: what is wrong there is not wrong here for the same
// reason.
package main
