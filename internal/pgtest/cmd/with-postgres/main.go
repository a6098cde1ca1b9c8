// Command with-postgres runs a command with one PostgreSQL for all test processes below it:
//
//	go run ./internal/pgtest/cmd/with-postgres -- go test ./...
//
// It starts a server for tests (nothing is synced to disk), names it in POSTERN_TEST_DATABASE_URL, and ends with the
// command's exit code (go run itself says 1 for any failure). If the variable is set already, it just runs the command.
// With -keep, the server of a command that failed stays until Ctrl-C, so that the databases of failed tests can be
// looked at.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/postern-dev/postern/internal/devpg"
)

const variable = "POSTERN_TEST_DATABASE_URL"

func main() {
	devpg.MaybeChild()
	keep := flag.Bool("keep", false, "after a failure leave the server running until Ctrl-C")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: with-postgres [-keep] -- command [argument ...]")
		os.Exit(2)
	}
	code, err := run(flag.Args(), *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "with-postgres:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command, or 1 and what went wrong before or after it.
func run(args []string, keep bool) (code int, err error) {
	// Ctrl-C reaches the command too: it ends, and then so do we.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	env, url := os.Environ(), os.Getenv(variable)
	if url == "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		s, err := devpg.Start(ctx, devpg.Options{Ephemeral: true, Unsafe: true, BinDir: os.Getenv("POSTERN_PG_BIN"),
			Log: func(line string) { fmt.Fprintln(os.Stderr, line) }})
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		url = s.URL
		env = append(env, variable+"="+url)
	}
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // reaches us alone: pass it on
	defer stop()
	cmd := exec.CommandContext(told, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, err
	}
	code = cmd.ProcessState.ExitCode()
	if code < 0 {
		code = 1 // ended by a signal
	}
	if code != 0 && keep && len(asked) == 0 {
		fmt.Fprintf(os.Stderr, "the server stays until Ctrl-C: %s\n", url)
		<-asked
	}
	return code, nil
}
