package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/bench"
	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// benchProcessCommand is one process of a benchmark. It builds itself, prints its address (or -) as a line,
// begins when it reads a line, and ends with its standard input: so it cannot outlive who started it.
func benchProcessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "process ROLE",
		Short:  "One process of a benchmark, started by postern bench",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := settings(cmd, devDefaults())
			if err != nil {
				return err
			}
			role := app.Role{Serve: args[0] == bench.RoleServe || args[0] == bench.RoleBoth,
				Work: args[0] == bench.RoleWork || args[0] == bench.RoleBoth, Version: version()}
			if !role.Serve && !role.Work {
				return otherProcess(cmd, cfg, args[0])
			}
			if len(cfg.SigningKey) == 0 { // as every installation should have one
				_, key, err := ed25519.GenerateKey(nil)
				if err != nil {
					return err
				}
				cfg.SigningKey = app.SigningKey(key)
			}
			a, err := app.New(cmd.Context(), cfg, role, app.Logger(cfg, os.Stderr))
			if err != nil {
				return err
			}
			return attachedRun(cmd, a.URL(), a.Run)
		},
	}
	addSettings(cmd, devDefaults(), groups...)
	return cmd
}

// otherProcess runs what Postern is compared with, or needs.
func otherProcess(cmd *cobra.Command, cfg app.Config, role string) error {
	var h http.Handler
	database, err := cfg.Database()
	if err != nil && role != bench.RoleWorker {
		return err
	}
	switch role {
	case bench.RolePlain:
		plain, free, err := bench.PlainHandler(cmd.Context(), database)
		if err != nil {
			return err
		}
		defer free()
		h = plain
	case bench.RoleNoCommit:
		pool, err := pg.Connect(cmd.Context(), database, 4)
		if err != nil {
			return err
		}
		defer pool.Close()
		log := app.Logger(cfg, os.Stderr)
		store, err := stores.Open(cmd.Context(), pool, log)
		if err != nil {
			return err
		}
		h = httpapi.New(httpapi.Config{Store: store, Ingester: &bench.NoCommit{}, Log: log, Auth: "none"}).Handler()
	case bench.RoleWorker:
		h = new(bench.Nothing).Handler()
	default:
		return usage(cmd, fmt.Errorf("there is no role %q", role))
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	return attachedRun(cmd, "http://"+l.Addr().String(), func(ctx context.Context) error {
		s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
		context.AfterFunc(ctx, func() { s.Close() })
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// attachedRun says where the process serves, waits for a line on standard input, and runs until that ends.
func attachedRun(cmd *cobra.Command, url string, run func(context.Context) error) error {
	if url == "" {
		url = "-"
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), url); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil // not needed after all
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	go func() {
		io.Copy(io.Discard, in)
		stop()
	}()
	return run(ctx)
}

// thisProgram is the path of the running program. What `go run` built may be gone by its name.
func thisProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// launcher starts this program once more as a process of a benchmark, with the settings of cmd.
func launcher(cmd *cobra.Command) bench.Launch {
	var flags []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if t, ok := f.Value.(*text); ok && f.Name != "listen" && f.Name != "database-url" {
			flags = append(flags, "--"+f.Name+"="+string(*t))
		}
	})
	return func(ctx context.Context, p bench.Part) (*bench.Process, error) {
		self, err := thisProgram()
		if err != nil {
			return nil, err
		}
		child := exec.Command(self, append([]string{"bench", "process", p.Role, "--listen=127.0.0.1:0"}, flags...)...)
		child.Env = append(os.Environ(), "DATABASE_URL="+p.Database)
		child.Stderr = cmd.ErrOrStderr()
		in, err := child.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := child.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := child.Start(); err != nil {
			return nil, err
		}
		stopped := false
		stop := func() error {
			if stopped {
				return nil
			}
			stopped = true
			in.Close()
			slow := time.AfterFunc(40*time.Second, func() { child.Process.Kill() })
			defer slow.Stop()
			return child.Wait()
		}
		early := context.AfterFunc(ctx, func() { child.Process.Kill() })
		defer early()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			stop()
			return nil, fmt.Errorf("it ended before it was ready: %w", err)
		}
		return &bench.Process{URL: strings.TrimSpace(strings.TrimPrefix(line, "-")), PID: child.Process.Pid, Stop: stop,
			Go: func() error { _, err := io.WriteString(in, "go\n"); return err }}, nil
	}
}
