//go:build !unix

package worker

import (
	"io"
	"os"
)

// lockFile cannot keep a second process out here: whoever starts the worker sees to it.
func lockFile(path string) (io.Closer, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
