package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/safe"
)

// StartChild runs this program once more with other arguments and returns the first line that it
// prints. The child holds the read end of a pipe as its standard input: stop closes the other end and
// waits, and if we are killed the system closes it. Ctrl-C in a terminal reaches us alone.
func StartChild(ctx context.Context, args ...string) (line string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // what `go run` built may be gone by its name
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	detach(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		slow := time.AfterFunc(5*time.Second, safe.Func("child", func() { cmd.Process.Kill() }))
		defer slow.Stop()
		cmd.Wait()
	}
	first := make(chan error, 1)
	go safe.Run("child", func() {
		var err error
		line, err = bufio.NewReader(out).ReadString('\n')
		first <- err
	})
	select {
	case err = <-first:
	case <-time.After(20 * time.Second):
		err = errors.New("it printed nothing for 20 s")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("start `postern %s`: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(line), stop, nil
}
