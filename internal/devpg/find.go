package devpg

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/postern-dev/postern/internal/fault"
)

// oldest is the lowest major that Postern runs on.
const oldest = 15

// binaries is a PostgreSQL to run.
type binaries struct {
	dir      string // holds initdb and postgres
	version  string // like 15.18
	major    int
	download bool // not there yet: the keeper fetches it into dir
}

// installed lists where operating systems and packagers put PostgreSQL; among these the highest major wins.
var installed = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // the PostgreSQL project's RPMs
	"/usr/local/pgsql/bin",      // from source
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// findBinaries looks in the order of the package comment: BinDir (wrong is an error), PATH, the usual places, an
// earlier download, a download. For root, what its server's user cannot reach is copied first.
func findBinaries(o Options, who account) (binaries, error) {
	if o.BinDir != "" {
		b, err := inspect(o.BinDir, nil)
		if err != nil {
			return b, fault.New(fault.Invalid, "no_postgres",
				"POSTERN_PG_BIN must be the directory of initdb and postgres %d or newer, not %s", oldest, fault.Clip(o.BinDir)).Because(err)
		}
		return who.reach(b, o.Log)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real // Homebrew and others link single programs
		}
		if b, err := inspect(filepath.Dir(path), nil); err == nil {
			return who.reach(b, o.Log)
		}
	}
	if b, ok := highest(installed, nil); ok {
		return who.reach(b, o.Log)
	}
	cache, err := who.cacheDir()
	if err != nil {
		return binaries{}, err
	}
	if b, ok := highest([]string{filepath.Join(cache, "pg-*", "bin")}, who.credential()); ok {
		return b, nil
	}
	if !o.AllowDownload {
		return binaries{}, fault.New(fault.Invalid, "no_postgres", "no PostgreSQL %d or newer is installed, and none may be downloaded: "+
			"install one (Debian and Ubuntu: postgresql; Fedora: postgresql-server; Homebrew: postgresql@18), name its bin directory in "+
			"POSTERN_PG_BIN, or name a server in DATABASE_URL", oldest)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, err
	}
	if err := who.own(cache); err != nil { // the keeper downloads
		return binaries{}, err
	}
	return toDownload(cache, o)
}

// highest returns the newest PostgreSQL among directories given as patterns.
func highest(patterns []string, as *syscall.Credential) (best binaries, found bool) {
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if b, err := inspect(dir, as); err == nil && b.major > best.major {
				best, found = b, true
			}
		}
	}
	return best, found
}

var versionLine = regexp.MustCompile(`\) (\d+)(\.\d+|devel|beta\d+|rc\d+)?`)

// inspect asks the postgres in dir for its version and checks that initdb is beside it. If the server's user could have
// put a program there, it is run as that user.
func inspect(dir string, as *syscall.Credential) (b binaries, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return b, err
	}
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return b, err
	}
	cmd := exec.Command(filepath.Join(dir, "postgres"), "--version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := cmd.Output()
	if err != nil {
		return b, err
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return b, fmt.Errorf("%s/postgres --version says %q", dir, fault.Clip(strings.TrimSpace(string(out))))
	}
	b = binaries{dir: dir, version: m[1] + m[2]}
	if b.major, err = strconv.Atoi(m[1]); err != nil || b.major < oldest {
		return b, fmt.Errorf("%s holds PostgreSQL %s", dir, b.version)
	}
	return b, nil
}

// cacheDir is where downloads lie.
func (a account) cacheDir() (string, error) {
	if a.switched {
		return filepath.Join(rootState, "cache"), nil
	}
	dir, err := os.UserCacheDir() // $XDG_CACHE_HOME on Linux
	return filepath.Join(dir, "postern"), err
}

// reach returns binaries that the account can run: b itself, or a copy of its installation where only root can write.
func (a account) reach(b binaries, log func(string)) (binaries, error) {
	if a.mayRun(filepath.Join(b.dir, "postgres")) {
		return b, nil
	}
	home := filepath.Dir(b.dir)
	if _, err := os.Stat(filepath.Join(home, "share")); err != nil {
		return b, fault.New(fault.Invalid, "no_postgres",
			"%s is closed to the user %s, which runs the server for root, and it is not a whole installation that could be copied: open it, or name another in POSTERN_PG_BIN", b.dir, a.name)
	}
	copies := filepath.Join(rootState, "copies")
	sum := sha256.Sum256([]byte(home + " " + b.version))
	to := filepath.Join(copies, b.version+"-"+hex.EncodeToString(sum[:4]))
	if c, err := inspect(filepath.Join(to, "bin"), nil); err == nil {
		return c, nil
	}
	log(fmt.Sprintf("%s is closed to the user %s, which runs the server for root: copied to %s", home, a.name, to))
	if err := os.MkdirAll(copies, 0o755); err != nil {
		return b, err
	}
	temp, err := os.MkdirTemp(copies, "new-")
	if err != nil {
		return b, err
	}
	defer os.RemoveAll(temp)
	for _, part := range []string{"bin", "lib", "share"} {
		if err := os.CopyFS(filepath.Join(temp, part), os.DirFS(filepath.Join(home, part))); err != nil {
			return b, err
		}
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return b, err
	}
	if err := os.Rename(temp, to); err != nil {
		return b, err
	}
	return inspect(filepath.Join(to, "bin"), nil)
}
