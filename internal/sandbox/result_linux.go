package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

const largestResult = 64 << 10 // bytes, also as the JSON that is told to the server

// readResult reads the result file that a script may have written. The script chose what lies there: a symlink is not
// followed, a FIFO does not block, and no more than the limit is read. nil, nil: there is none, or it is empty.
func readResult(path string) (map[string]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.ELOOP):
		return nil, errors.New("the result is a symlink: want a regular file")
	case errors.Is(err, syscall.ENXIO): // a UNIX socket
		return nil, errors.New("the result is a socket: want a regular file")
	case err != nil:
		return nil, fmt.Errorf("the result cannot be read: %w", errors.Unwrap(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("the result is no regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, largestResult+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the result cannot be read: %w", err)
	case len(text) > largestResult:
		return nil, fmt.Errorf("the result has %d bytes: want at most %d", info.Size(), largestResult)
	case len(text) == 0:
		return nil, nil
	}
	result, err := parseResult(text)
	if n := sizeOf(result); err == nil && n > largestResult {
		return nil, fmt.Errorf("the result has %d bytes as JSON: want at most %d", n, largestResult)
	}
	return result, err
}

// sizeOf is how many bytes a result has as JSON. It may be more than the file had: a byte that is no UTF-8 becomes
// three.
func sizeOf(result map[string]string) int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(result); err != nil {
		panic(err) // strings are JSON
	}
	return b.Len() - 1 // without the line's end
}

// printed is the result of a script that wrote none: the end of its output, as much as a result may have.
func printed(stdout string) map[string]string {
	for {
		result := map[string]string{"stdout": stdout}
		over := sizeOf(result) - largestResult
		if over <= 0 {
			return result
		}
		cut := max(1, over/6) // of characters of six bytes each that is all that has to go
		for cut < len(stdout) && !utf8.RuneStart(stdout[cut]) {
			cut++
		}
		stdout = stdout[cut:]
	}
}

// parseResult reads an object of strings that PostgreSQL takes.
func parseResult(text []byte) (map[string]string, error) {
	var object map[string]*string
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, errors.New("the result is no JSON object of strings, such as {\"n\": \"3\"}")
	}
	result := make(map[string]string, len(object))
	for k, v := range object {
		if v == nil || strings.ContainsRune(k, 0) || strings.ContainsRune(*v, 0) {
			return nil, fmt.Errorf("the value of %.64q in the result: want a string without a character 0", k)
		}
		result[k] = *v
	}
	return result, nil
}
