package devpg

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestADownloadIsAnnouncedMadeOnceAndRun serves the installed PostgreSQL under the name of the one that would be
// downloaded. No test of ours downloads from the real place.
func TestADownloadIsAnnouncedMadeOnceAndRun(t *testing.T) {
	found, ok := highest(installed, nil)
	if !ok {
		t.Skip("no PostgreSQL lies in the usual places: install the package postgresql")
	}
	txz := filepath.Join(t.TempDir(), "postgres.txz")
	pack := exec.Command("tar", "--create", "--use-compress-program", "xz -0", "--file", txz,
		// conversions of encodings
		"--directory", filepath.Dir(found.dir), "--exclude", "bitcode", "--exclude", "llvmjit*", "--exclude", "*_and_*",
		"bin/initdb", "bin/pg_ctl", "bin/postgres", "lib")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Skipf("tar cannot pack with xz (install the package xz-utils): %s", out)
	}
	body, err := os.ReadFile(txz)
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres.txz")
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int32
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			sum := sha256.Sum256(jar.Bytes())
			w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		served.Add(1)
		w.Write(jar.Bytes())
	}))
	defer repository.Close()

	cache := openDir(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	wasRoot, wasInstalled := rootState, installed
	rootState, installed = cache, nil
	defer func() { rootState, installed = wasRoot, wasInstalled }()
	t.Setenv("PATH", "/usr/bin:/bin")

	var said []string
	o := Options{Ephemeral: true, Unsafe: true, AllowDownload: true, Repository: repository.URL,
		Log: func(line string) { said = append(said, line) }}
	// The downloaded one says its own version, which is not that of the name: it must not be run on data of that major.
	s, err := startOnce(o)
	if string(fetched)[:2] != found.version[:2] {
		if err == nil || !strings.Contains(err.Error(), "expected 18") {
			t.Fatalf("started %+v, error %v", s, err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if len(said) != 2 || !strings.Contains(said[0], "downloading "+string(fetched)) ||
		!strings.Contains(said[1], "sha256 of postgres") {
		t.Errorf("said %q", said)
	}
	s = begin(t, o) // an earlier download
	if s.Version != found.version || served.Load() != 1 {
		t.Errorf("version %s, downloaded %d times", s.Version, served.Load())
	}
}
