//go:build !unix

package worker

import (
	"io"
	"os"
)

// lockFile cannot keep a second process out here: the operator has to start only one.
func lockFile(path string) (io.Closer, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
