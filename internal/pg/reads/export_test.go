package reads

import (
	"context"
	"time"
)

// RollHour rolls up one hour at a pace of one's own; Unhurried is the one that it has, Fitting the sizes of its slices.
func (s *Store) RollHour(ctx context.Context, hour time.Time, atOnce int,
	pace func(context.Context, int, time.Duration) (int, error)) error {
	return s.rollHour(ctx, hour, atOnce, pace)
}

var Unhurried, Fitting = unhurried, fitting

// LineSQL finds what goes out next.
const LineSQL = lineSQL
