package app

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// Logger writes to f as the configuration says: coloured lines on a terminal, JSON otherwise.
func Logger(c Config, f *os.File) *slog.Logger {
	_, _, terminal := Terminal(f)
	if c.LogFormat == "json" || c.LogFormat == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(f, &slog.HandlerOptions{Level: c.LogLevel}))
	}
	return slog.New(tint.NewHandler(f, &tint.Options{Level: c.LogLevel, TimeFormat: time.TimeOnly,
		NoColor: !terminal || os.Getenv("NO_COLOR") != ""}))
}
