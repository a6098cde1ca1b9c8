package sandbox

import (
	"fmt"
	"time"
)

// Level says how well scripts are kept apart from the machine and from each other.
type Level string

const (
	Off     Level = "off"     // the script may do what the user of the runner may do
	Partial Level = "partial" // the box; each process has limits, and the memory of all is looked at ten times a second
	Strict  Level = "strict"  // the box, and a cgroup that bounds memory and processes of all together
)

var ranks = map[Level]int{Off: 0, Partial: 1, Strict: 2}

// ParseLevel reads the name of a level.
func ParseLevel(s string) (Level, error) {
	if _, ok := ranks[Level(s)]; !ok {
		return "", fmt.Errorf("isolation %q: want strict, partial or off", s)
	}
	return Level(s), nil
}

// Config is the same for all scripts of a runner. The zero value of a field takes its default.
type Config struct {
	State        string                 // directory below which each script gets one of its own; others may pass it
	Least        Level                  // New refuses where the kernel gives less; Off runs without a box [partial]
	ReadOnly     []string               // paths of the host that scripts see besides /usr, /bin, /sbin, /lib
	Interpreters map[string]Interpreter // by script type [DefaultInterpreters]
	Limits       Limits
	FirstUID     int    // of the range that a runner of root uses, one for each slot [64000]
	Cgroup       string // a directory of cgroup v2 that is ours alone [that of this process]
}

// Limits bound one script with all that it starts.
type Limits struct {
	Memory    int64         // bytes: of each process as address space, of all together as memory [512 MiB]
	Processes int           // processes and threads [64]
	Files     int           // open in one process [256]
	FileSize  int64         // bytes of the largest file [64 MiB]
	Tmp       int64         // bytes in /tmp, which is memory [64 MiB]
	Log       int64         // bytes of lines that are told; more is read and dropped [1 MiB]
	Grace     time.Duration // from TERM to KILL [10s]
}

// Script is what is run once.
type Script struct {
	Context string            // the tenant: a directory of its own
	Name    string            // of the run; unique among those that are alive
	Slot    int               // unique among those that are alive; it chooses the uid
	Type    string            // the name of its interpreter
	Text    string            // the script itself
	Env     map[string]string // all that it gets besides PATH, HOME, LANG, TMPDIR, POSTERN_RESULT, POSTERN_INPUTS
	Inputs  []byte            // JSON; {} if empty
	Timeout time.Duration     // from the start
	Network bool              // the network of the host
}

// Codes say why a script did not do what it should.
const (
	CodeExit           = "exit"            // it ended with an exit code above 0
	CodeSignal         = "signal"          // a signal ended it that we did not send
	CodeTimedOut       = "timed_out"       // it ran longer than it may
	CodeStopped        = "stopped"         // Stop or Kill
	CodeMemory         = "memory"          // it took more memory than it may
	CodeBadResult      = "bad_result"      // it exited with 0, and its result is none
	CodeNoInterpreter  = "no_interpreter"  // its interpreter is not on this machine
	CodeBadEnvironment = "bad_environment" // a name or value that no process can have, or one that is ours
	CodeSandbox        = "sandbox"         // the box could not be built, or has broken
)

// Outcome is what became of a script. Code is "" if it did what it should: exit 0 and a result.
type Outcome struct {
	Code    string
	Error   string            // a sentence; the last lines of stderr where the script ended badly
	Exit    *int              // the exit code, where there is one
	Result  map[string]string // of success; without a result file {"stdout": the last 64 KiB}
	Partial map[string]string // what the result file held although the script failed
	Level   Level             // under which it ran
	Usage   Usage
}

// Usage is what a script and all that it started used.
type Usage struct {
	Wall   time.Duration
	CPU    time.Duration
	MaxRSS int64 // bytes, of the largest process
	Output int64 // bytes written to stdout and stderr
}

// Failure is a fault of this package with one of the codes above.
type Failure struct {
	Code   string
	Detail string
}

func (f *Failure) Error() string { return f.Detail }

func failure(code, format string, args ...any) *Failure {
	return &Failure{code, fmt.Sprintf(format, args...)}
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	l := &c.Limits
	l.Memory = or(l.Memory, 512<<20)
	l.Processes = or(l.Processes, 64)
	l.Files = or(l.Files, 256)
	l.FileSize = or(l.FileSize, 64<<20)
	l.Tmp = or(l.Tmp, 64<<20)
	l.Log = or(l.Log, 1<<20)
	l.Grace = or(l.Grace, 10*time.Second)
	c.Least = or(c.Least, Partial)
	c.FirstUID = or(c.FirstUID, 64000)
	if c.Interpreters == nil {
		c.Interpreters = DefaultInterpreters()
	}
	return c
}
