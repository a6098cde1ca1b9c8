package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// postern is the program, built once; POSTERN_TEST_BINARY names another one, such as that of an older commit.
var postern = sync.OnceValues(func() (string, error) {
	if b := os.Getenv("POSTERN_TEST_BINARY"); b != "" {
		return b, nil
	}
	dir, err := os.MkdirTemp("", "postern-bin-")
	if err != nil {
		return "", err
	}
	built = dir
	b := filepath.Join(dir, "postern")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", b, "../../cmd/postern").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build postern: %w\n%s", err, out)
	}
	return b, err
})

var built string // where it lies

// remover runs the tests and removes what was built for them.
type remover struct{ *testing.M }

func (r remover) Run() int {
	code := r.M.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	return code
}
