package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/fault"
)

// The exit codes, as the help of the root command lists them.
const (
	exitBad         = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitWaited      = 4
	exitDisowned    = 5
	exitChanges     = 6
)

// failure is an error that knows its exit code and what to do next.
type failure struct {
	code int
	next string // a sentence or a command, "" if the error says it
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usage marks an error as one of how the command was called.
func usage(cmd *cobra.Command, err error) error {
	return &failure{exitUsage, "see `" + cmd.CommandPath() + " -h`", err}
}

// codes maps the codes of faults to exit codes; the others are exitBad.
var codes = map[string]int{
	"no_database":            exitUsage,
	"bad_setting":            exitUsage,
	"ephemeral_and_database": exitUsage,
	"reset_and_database":     exitUsage,
	"database_of_others":     exitUsage,
	"database_unavailable":   exitUnreachable,
	"database_unfit":         exitBad,
	"worker_unreachable":     exitUnreachable,
	"database_went_back":     exitDisowned,
	"node_gone":              exitDisowned,
	"two_primaries":          exitDisowned,
}

// report prints an error once and returns its exit code.
func report(cmd *cobra.Command, err error) int {
	f := &failure{code: exitBad, err: err}
	if !errors.As(err, &f) {
		if code, ok := codes[fault.CodeOf(err)]; ok {
			f.code = code
			if fault.CodeOf(err) == "two_primaries" {
				f.next = "`postern doctor` says what is to be done about it"
			}
		} else if cmd.Flags().Lookup("url") != nil {
			f.code, f.next = further(cmd, err)
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			f.code = exitWaited
		case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "accepts "),
			strings.HasPrefix(err.Error(), "requires "), strings.HasPrefix(err.Error(), "required flag"), strings.HasPrefix(err.Error(), "invalid argument"):
			f.code, f.next = exitUsage, "see `"+cmd.CommandPath()+" -h`"
		}
	}
	if name := meant(cmd, err); name != "" {
		f.next = "did you mean `" + name + "`? " + f.next
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "postern: %v\n", err)
	if f.next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "next: %s\n", f.next)
	}
	return f.code
}

var unknownCommand = regexp.MustCompile(`^unknown command "([^"]*)"`)

// meant is the command that was probably meant where one is not known, "" if there is none.
func meant(cmd *cobra.Command, err error) string {
	typed := unknownCommand.FindStringSubmatch(err.Error())
	if typed == nil {
		return ""
	}
	cmd.SuggestionsMinimumDistance = 2
	if list := cmd.SuggestionsFor(typed[1]); len(list) > 0 {
		return cmd.CommandPath() + " " + list[0]
	}
	return ""
}
