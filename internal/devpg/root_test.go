package devpg

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// asRoot skips unless we are root, and puts what root keeps elsewhere into a directory of the test.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this is about root: run the tests as root to see it")
	}
	was := rootState
	rootState = filepath.Join(openDir(t), "postern")
	t.Cleanup(func() { rootState = was })
}

func TestRootsServerRunsAsAnotherUserAndStaysOutOfClosedDirectories(t *testing.T) {
	asRoot(t)
	var said []string
	closed := filepath.Join(t.TempDir(), "state") // below a directory that is 0700
	s := begin(t, Options{StateDir: closed, Log: func(line string) { said = append(said, line) }})
	if !strings.HasPrefix(s.DataDir, rootState) || len(said) != 1 || !strings.Contains(said[0], "is closed to the user") {
		t.Errorf("data in %s, said %q", s.DataDir, said)
	}
	info, err := os.Stat("/proc/" + strconv.Itoa(pidOf(t, s.DataDir)))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
		t.Error("postgres runs as root")
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	uid, gid := account0(t, "nobody")
	err = filepath.WalkDir(filepath.Dir(s.DataDir), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
	if err != nil {
		t.Fatal(err)
	}
	s = begin(t, Options{StateDir: closed})
	for _, path := range []string{s.DataDir, "/proc/" + strconv.Itoa(pidOf(t, s.DataDir))} {
		if info, err = os.Stat(path); err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; int(got) != uid {
			t.Errorf("data that belongs to another user stays his: %s belongs to %d, want %d", path, got, uid)
		}
	}
}

// lean is a tree of files without what a server does not need.
type lean struct{ fs.ReadLinkFS }

func (l lean) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(l.ReadLinkFS, name)
	return slices.DeleteFunc(list, func(e fs.DirEntry) bool {
		return strings.Contains(" bitcode man doc locale extension ", " "+e.Name()+" ") || strings.HasPrefix(e.Name(), "llvmjit") ||
			strings.HasPrefix(e.Name(), "pg_") && !strings.Contains(e.Name(), ".")
	}), err
}

func TestBinariesThatTheServersUserCannotReachAreCopied(t *testing.T) {
	asRoot(t)
	share, err := exec.Command("pg_config", "--sharedir").Output()
	found, ok := highest(installed, nil)
	if !ok {
		t.Skip("no PostgreSQL lies in the usual places: install the package postgresql")
	}
	dir := strings.TrimSpace(string(share))
	if err != nil {
		dir = "/usr/share/postgresql/" + strconv.Itoa(found.major)
	}
	if _, err := os.Stat(filepath.Join(dir, "postgres.bki")); err != nil {
		t.Skipf("the shared files of PostgreSQL are not in %s: install pg_config", dir)
	}
	home := t.TempDir()
	for from, to := range map[string]string{found.dir: "bin", filepath.Join(filepath.Dir(found.dir), "lib"): "lib", dir: "share"} {
		if err := os.CopyFS(filepath.Join(home, to), lean{os.DirFS(from).(fs.ReadLinkFS)}); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	o := Options{Ephemeral: true, Unsafe: true, BinDir: filepath.Join(home, "bin"), Log: func(line string) { said = append(said, line) }}
	s := begin(t, o)
	if got := ask(t, s.URL, "SELECT setting FROM pg_config WHERE name = 'BINDIR'"); !strings.HasPrefix(got, rootState) {
		t.Errorf("it runs from %s", got)
	}
	if len(said) != 1 || !strings.Contains(said[0], "copied to "+rootState) {
		t.Errorf("said %q", said)
	}
	who, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := findBinaries(o, who); err != nil || !strings.HasPrefix(again.dir, rootState) || len(said) != 1 {
		t.Errorf("%s, %v; copied again: %q", again.dir, err, said)
	}
}

func mustFind(t *testing.T) binaries {
	t.Helper()
	who, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	b, err := findBinaries(Options{Log: func(string) {}}, who)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStartWithoutMaybeChildSaysWhatIsMissing(t *testing.T) {
	childChecked = false
	defer func() { childChecked = true }()
	if _, err := Start(context.Background(), Options{}); err == nil || !strings.Contains(err.Error(), "MaybeChild") {
		t.Errorf("Start says %v", err)
	}
}
