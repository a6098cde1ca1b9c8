// Package session opens sessions of PostgreSQL as every command of Postern wants them.
//
// Parse is the one parser of DATABASE_URL. Each parameter works, or is ignored with a warning, or is refused by its
// name. Parse asks the server for the settings on which our SQL rests, so that what ALTER ROLE and ALTER DATABASE set
// does not count. Judge says why a database, or what stands before it, cannot be used.
package session
