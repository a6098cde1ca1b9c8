package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/safe"
)

// Child is this program once more, with other arguments. It holds the read end of a pipe as its standard input, so that
// it ends when we do, however that is. Ctrl-C in a terminal reaches us alone.
type Child struct {
	Line string // the first one that it printed

	cmd  *exec.Cmd
	in   io.Closer
	once sync.Once
}

// Stop has the child end, and waits until it has.
func (c *Child) Stop() {
	c.in.Close()
	slow := time.AfterFunc(5*time.Second, safe.Func("child", func() { c.cmd.Process.Kill() }))
	defer slow.Stop()
	c.wait()
}

// Kill ends the child as kill -9 does, and waits until it is gone.
func (c *Child) Kill() {
	c.cmd.Process.Kill()
	c.wait()
	c.in.Close()
}

func (c *Child) wait() { c.once.Do(func() { c.cmd.Wait() }) }

// StartChild runs a Child that writes to our standard error, and returns the first line that it prints and how to stop
// it. It has 20 s for that line.
func StartChild(ctx context.Context, args ...string) (line string, stop func(), err error) {
	c, err := NewChild(ctx, os.Stderr, 20*time.Second, args...)
	if err != nil {
		return "", nil, err
	}
	return c.Line, c.Stop, nil
}

// NewChild runs a Child that writes to log, and waits for the first line that it prints.
func NewChild(ctx context.Context, log *os.File, within time.Duration, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // what `go run` built may be gone by its name
	}
	c := &Child{cmd: exec.Command(self, args...)}
	c.cmd.Stderr = log
	detach(c.cmd)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	type said struct {
		line string
		err  error
	}
	first := make(chan said, 1)
	go safe.Run("child", func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		first <- said{line, err}
	})
	select {
	case s := <-first:
		c.Line, err = strings.TrimSpace(s.line), s.err
	case <-time.After(within):
		err = fmt.Errorf("it printed nothing for %s", within)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("start `postern %s`: %w", strings.Join(args, " "), err)
	}
	return c, nil
}
