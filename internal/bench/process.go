package bench

import "context"

// What a process can be. serve and work are Postern's; the others are what it is compared with, or needs.
const (
	RoleServe    = "serve"    // the API
	RoleWork     = "work"     // the sequencer
	RoleBoth     = "both"     // API and sequencer in one
	RolePlain    = "plain"    // one INSERT and one commit per request, behind the same router
	RoleNoCommit = "nocommit" // the API, whose posts are answered before they are stored
	RoleWorker   = "worker"   // an HTTP worker that does nothing
)

// Part says which process to start.
type Part struct {
	Role     string
	Database string // its URL; a worker has none
}

// Process is a part that is built and connected and waits to be let go.
type Process struct {
	URL  string // of what it serves; "" for work
	PID  int
	Go   func() error // it begins to work, or to serve
	Stop func() error // it ends in its orderly way
}

// Launch starts a process. Its resources are freed by Stop, whether it was let go or not.
type Launch func(ctx context.Context, p Part) (*Process, error)
