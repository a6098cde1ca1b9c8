//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"runtime"
)

// Box runs scripts. There is none on this system.
type Box struct{}

// Process is a script that was started. There is none on this system.
type Process struct{}

var errElsewhere = errors.New("scripts are run on Linux only, and this is " + runtime.GOOS +
	": start the runner on Linux")

// New refuses.
func New(context.Context, Config) (*Box, error) { return nil, errElsewhere }

// Level is off.
func (*Box) Level() (level Level, why string) { return Off, errElsewhere.Error() }

// Swept is 0.
func (*Box) Swept() int { return 0 }

// Start refuses.
func (*Box) Start(Script, func(Line)) (*Process, error) { return nil, errElsewhere }

// Stop does nothing.
func (*Process) Stop() {}

// Kill does nothing.
func (*Process) Kill() {}

// Wait returns at once.
func (*Process) Wait() Outcome { return Outcome{Code: CodeSandbox, Error: errElsewhere.Error()} }
