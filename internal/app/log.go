package app

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/lmittmann/tint"
)

// Logger writes to f as the configuration says: coloured lines on a terminal, JSON otherwise.
func Logger(c Config, f *os.File) *slog.Logger {
	_, _, terminal := Terminal(f)
	if c.LogFormat == "json" || c.LogFormat == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(f, &slog.HandlerOptions{Level: c.LogLevel}))
	}
	return people(c, f, f)
}

// people logs to w, coloured if f is a terminal.
func people(c Config, w io.Writer, f *os.File) *slog.Logger {
	_, _, terminal := Terminal(f)
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: c.LogLevel, TimeFormat: time.TimeOnly,
		NoColor: !terminal || os.Getenv("NO_COLOR") != ""}))
}

// heldAtMost bounds what a HeldLog keeps, in bytes.
const heldAtMost = 64 << 10

// HeldLog keeps what is logged until Release, so that it does not appear in the middle of a table.
type HeldLog struct {
	to io.Writer

	mu      sync.Mutex
	kept    bytes.Buffer
	dropped bool // more came than is kept
	through bool
}

// LoggerHeld is Logger with lines for people, whether f is a terminal or not, which appear when they are released.
// LogFormat json is heeded, and is not held.
func LoggerHeld(c Config, f *os.File) (*slog.Logger, *HeldLog) {
	h := &HeldLog{to: f, through: c.LogFormat == "json"}
	if h.through {
		return Logger(c, f), h
	}
	return people(c, h, f), h
}

// Write takes one line.
func (h *HeldLog) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.through {
		return h.to.Write(line)
	}
	if h.dropped = h.dropped || h.kept.Len()+len(line) > heldAtMost; !h.dropped {
		h.kept.Write(line)
	}
	return len(line), nil
}

// Release writes what was kept below a title, and from now on everything at once.
func (h *HeldLog) Release(title string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept.Len() > 0 {
		io.WriteString(h.to, title)
		h.kept.WriteTo(h.to)
		if h.dropped {
			io.WriteString(h.to, "(and more, which was not kept)\n")
		}
	}
	h.through = true
}
