// Package runner is the process that executes jobs: it registers under a name, claims jobs over HTTP, runs each script
// in a sandbox, and reports lines, results and failures under the fence of the try. wire.go is what it says and what it
// is told; the server's side is built from the same file.
package runner
