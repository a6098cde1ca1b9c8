package pg

import (
	"context"

	"github.com/postern-dev/postern/internal/fault"
)

// Constraints is the map of errors.go, by the name of a constraint.
func Constraints() map[string]fault.Kind { return constraints }

// HoldCommits makes every transaction of s call hold between its writes and its commit, with the process
// id of its session; an error rolls it back. nil ends it.
func (s *Store) HoldCommits(hold func(ctx context.Context, pid uint32) error) { s.beforeCommit = hold }
