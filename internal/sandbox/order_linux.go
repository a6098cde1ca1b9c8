package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// stageVariable makes this program an init or a step instead of what it is else.
const stageVariable = "POSTERN_SANDBOX_STAGE"

// File descriptors of an init and of a step beside stdin, stdout, stderr.
const (
	orderFD  = 3 // init: the order and then commands from the runner, its end is the end of the runner. step: the order
	reportFD = 4 // reports to the runner
)

// The commands of a runner to an init, one byte each.
const (
	commandTerm = 't' // TERM to the process group of the script
	commandKill = 'k' // KILL to all that is left of it
)

// order tells an init what to build and what to run.
type order struct {
	Box      bool // false: no namespaces
	Dir      string
	ReadOnly []string
	Network  bool
	Path     string // of the interpreter
	Argv     []string
	Env      []string
	Unmapped bool
	Bounded  bool // a cgroup bounds the memory
	Limits   Limits
}

// report is a line from an init or a step.
type report struct {
	Ended  bool   // the script has ended, and nothing of it is alive
	Exit   int    // its exit code, or -1
	Signal int    // that ended it
	Memory bool   // it was killed because it took too much
	CPU    int64  // nanoseconds
	MaxRSS int64  // bytes
	Code   string // of a failure before the script
	Error  string
}

// init never returns in a process that is an init or a step. It is no call of main, since each script starts two of
// them: Go initialises packages by name as soon as their imports are, this one imports none but the standard library's,
// and so those that take most of a start (templates, schemas, metrics) are not initialised.
func init() {
	switch os.Getenv(stageVariable) {
	case "init":
		os.Exit(runInit())
	case "step":
		os.Exit(runStep())
	}
}

// readOrder reads the first line of r. What follows it are commands.
func readOrder(r *bufio.Reader) (o order, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return o, fmt.Errorf("read the order: %w", err)
	}
	return o, json.Unmarshal(line, &o)
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
