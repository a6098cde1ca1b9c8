//go:build !linux && !darwin

package app

import "os"

// Terminal says that nothing is a terminal: lines instead of a redrawn table, JSON logs.
func Terminal(*os.File) (columns, rows int, ok bool) { return 0, 0, false }
