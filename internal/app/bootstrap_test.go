package app_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestTheFirstKeyComesFromAFile(t *testing.T) {
	t.Parallel()
	const key = "postern_first123_0123456789012345678901234567890123456789012"
	file := filepath.Join(t.TempDir(), "key")
	database := pgtest.New(t).URL
	start := func(content string) (*app.App, string, error) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": database,
			"POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_BOOTSTRAP_KEY_FILE": file}})
		if err != nil {
			t.Fatal(err)
		}
		written, err := os.CreateTemp(t.TempDir(), "log") // a file: the process may write it while it is read
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { written.Close() })
		a, err := app.New(t.Context(), c, app.Role{Serve: true}, slog.New(slog.NewTextHandler(written, nil)))
		log, unread := os.ReadFile(written.Name())
		if unread != nil || strings.Contains(string(log), key[20:]) {
			t.Errorf("the key is in the log: %s (%v)", log, unread)
		}
		return a, string(log), err
	}
	if _, _, err := start("hunter2"); fault.CodeOf(err) != "bad_setting" || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file without a key: %v", err)
	}
	for i, want := range []bool{true, false} { // it is stored once
		a, log, err := start(key + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log, "first admin key") != want {
			t.Errorf("start %d logs %q", i, log)
		}
		for credential, status := range map[string]int{key: http.StatusOK, "": http.StatusUnauthorized} {
			r := httptest.NewRequest(http.MethodGet, "/contexts", nil)
			if credential != "" {
				r.Header.Set("Authorization", "Bearer "+credential)
			}
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("with %q: %d %s", credential, w.Code, w.Body)
			}
		}
		a.Close()
	}
}
