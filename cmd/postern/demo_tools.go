package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/demo"
)

// startTools starts the tools of the leader's demo, two processes: one of this program, which answers calls that key
// has signed, and a plain script. Both end with us, however we end.
func startTools(ctx context.Context, key string) (at [2]string, stop func(), err error) {
	first, stopFirst, err := app.StartChild(ctx, "worker", "tools", "--attached", "--key", key)
	if err != nil {
		return at, nil, err
	}
	second, stopSecond, err := startScript(ctx)
	if err != nil {
		stopFirst()
		return at, nil, err
	}
	return [2]string{first, second}, func() { stopSecond(); stopFirst() }, nil
}

// startScript runs internal/demo/tool.py and returns the address that it prints.
func startScript(ctx context.Context) (address string, stop func(), err error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", nil, errors.New("one of the tools of this demo is a script for python3, which is not in PATH: install it, or run the demo without --leader")
	}
	dir, err := os.MkdirTemp("", "postern-tool-")
	if err != nil {
		return "", nil, err
	}
	script := filepath.Join(dir, "tool.py")
	if err := os.WriteFile(script, []byte(demo.Script), 0o600); err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	cmd := exec.Command(python, "-I", script, "0", "--attached")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		var out interface{ Read([]byte) (int, error) }
		if out, err = cmd.StdoutPipe(); err == nil {
			if err = cmd.Start(); err == nil {
				stop = func() {
					in.Close()
					slow := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
					defer slow.Stop()
					cmd.Wait()
					os.RemoveAll(dir)
				}
				line := make(chan string, 1)
				go func() {
					text, _ := bufio.NewReader(out).ReadString('\n')
					line <- strings.TrimSpace(text)
				}()
				select {
				case address = <-line:
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
				if address != "" {
					return address, stop, nil
				}
				stop()
				return "", nil, errors.New("the script of the demo's tools printed no address")
			}
		}
	}
	os.RemoveAll(dir)
	return "", nil, err
}
