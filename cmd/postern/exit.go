package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
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
		code, known := codes[fault.CodeOf(err)]
		if known {
			f.code = code
			f.next = nextOf(err)
		} else if cmd.Flags().Lookup("url") != nil {
			f.code, f.next = further(cmd, err)
		}
		switch {
		case !known && errors.Is(err, context.DeadlineExceeded):
			f.code = exitWaited
		case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "accepts "),
			strings.HasPrefix(err.Error(), "requires "), strings.HasPrefix(err.Error(), "required flag"),
			strings.HasPrefix(err.Error(), "invalid argument"), excluded.MatchString(err.Error()):
			f.code, f.next, err = exitUsage, "see `"+cmd.CommandPath()+" -h`", plainer(cmd, err)
		}
	}
	name := meant(cmd, err)
	if name == "" && cmd.Flags().Lookup("url") != nil {
		name = known(cmd, err)
	}
	if name != "" {
		f.next = "did you mean `" + name + "`? " + f.next
	}
	if lost, ok := err.(*url.Error); ok && unreached(err) {
		err = fmt.Errorf("nothing answers at %s: %w", strings.TrimSuffix(lost.URL, "/"), lastOf(err))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "postern: %v\n", err)
	if f.next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "next: %s\n", f.next)
	}
	return f.code
}

// nextOf is what to do about a fault that is none of an API.
func nextOf(err error) string {
	switch fault.CodeOf(err) {
	case "two_primaries":
		return "`postern doctor` says what is to be done about it"
	case "database_unavailable":
		_, next := session.Refused(err)
		return next
	case "worker_unreachable":
		return "start the worker, or correct its address"
	}
	return ""
}

// excluded finds the flags that were given together and exclude one another.
var excluded = regexp.MustCompile(`^if any flags in the group .*; \[(.+)\] were all set$`)

var requiredFlag = regexp.MustCompile(`"([^"]+)"`)

// plainer says in our words which arguments or flags a command wants, where the library that reads them refused them.
func plainer(cmd *cobra.Command, err error) error {
	_, wants, _ := strings.Cut(cmd.Use, " ")
	got := len(cmd.Flags().Args())
	if both := excluded.FindStringSubmatch(err.Error()); both != nil {
		return fmt.Errorf("%s takes one of --%s, not both", cmd.CommandPath(),
			strings.Join(strings.Fields(both[1]), " and --"))
	}
	switch said := err.Error(); {
	case strings.HasPrefix(said, "required flag"):
		var list []string
		for _, m := range requiredFlag.FindAllStringSubmatch(said, -1) {
			list = append(list, "--"+m[1])
		}
		return fmt.Errorf("%s wants %s", cmd.CommandPath(), strings.Join(list, " and "))
	case strings.HasPrefix(said, "accepts "), strings.HasPrefix(said, "requires "):
		if got == 0 {
			return fmt.Errorf("%s wants %s", cmd.CommandPath(), wants)
		}
		return fmt.Errorf("%s wants %s: got %q", cmd.CommandPath(), wants, cmd.Flags().Args())
	}
	return err
}
