package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/demo"
)

// runFlows runs the demo of flows with runners of its own, and another installation.
func runFlows(ctx context.Context, cmd *cobra.Command, c demo.Config) (*demo.Summary, error) {
	if _, err := exec.LookPath("python3"); err != nil {
		return nil, errors.New("the jobs of this demo are scripts for python3, which is not in PATH: install it, " +
			"or run the demo without --flow")
	}
	dir, err := os.MkdirTemp("", "postern-runners-")
	if err != nil {
		return nil, err
	}
	far, stop, err := startFar(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("start the other installation: %w", err)
	}
	defer stop()
	r := &demoRunners{dir: dir}
	defer r.stop()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	c.Runners = demo.Runners{File: filepath.Join(dir, "written.txt"), Far: far.URL(), Start: r.start}
	return demo.RunFlows(ctx, c)
}

// startFar starts another installation in this process, with a database that is thrown away.
func startFar(ctx context.Context, cmd *cobra.Command) (far *app.Dev, stop func(), err error) {
	cfg, _, err := settings(cmd, devDefaults())
	if err != nil {
		return nil, nil, err
	}
	cfg.DatabaseURL, cfg.SigningKey, cfg.UI = "", nil, "off"
	cfg.Listen, cfg.MetricsListen = "127.0.0.1:0", "127.0.0.1:0"
	far, err = app.NewDev(ctx, cfg, app.DevOptions{Ephemeral: true, Version: version(), Say: func(string) {}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	runs, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- far.Run(runs) }()
	return far, func() { end(); <-ended }, nil
}

// demoRunners are processes of this program that execute jobs. They end with us, however we end.
type demoRunners struct {
	dir     string
	started []*demoRunner
}

type demoRunner struct {
	cmd   *exec.Cmd
	input interface{ Close() error }
	ended chan struct{}
}

// start starts a runner. What it logs is in a file, which is told of if it does not start.
func (r *demoRunners) start(api, name string) (kill func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // what `go run` built may be gone by its name
	}
	log, err := os.Create(filepath.Join(r.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, "runner", "--attached", "--url", api, "--name", name, "--slots", "8",
		"--isolation", "off", "--state", filepath.Join(r.dir, "state"), "--drain", "1s")
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the runner %s: %w", name, err)
	}
	one := &demoRunner{cmd, in, make(chan struct{})}
	r.started = append(r.started, one)
	go func() {
		defer close(one.ended)
		_ = cmd.Wait() // it is killed, or told to end
	}()
	return func() { _ = cmd.Process.Kill(); <-one.ended }, nil
}

// stop ends all runners, and removes what they wrote.
func (r *demoRunners) stop() {
	for _, one := range r.started {
		_ = one.input.Close()
	}
	for _, one := range r.started {
		select {
		case <-one.ended:
		case <-time.After(10 * time.Second):
			_ = one.cmd.Process.Kill()
			<-one.ended
		}
	}
	_ = os.RemoveAll(r.dir)
}
