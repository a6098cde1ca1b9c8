package devpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// Options say where to look and what to start. The zero value keeps its data under the user's state directory and
// downloads nothing.
type Options struct {
	StateDir      string            // where the data is kept; "" is $XDG_STATE_HOME/postern
	Ephemeral     bool              // a new server in a temporary directory, removed at the end; nothing is joined
	Reset         bool              // throw away what is kept, of the major that would be started, and begin anew
	BinDir        string            // the directory of initdb and postgres (POSTERN_PG_BIN); "" looks for one
	AllowDownload bool              // download one if none is installed (POSTERN_PG_DOWNLOAD)
	Repository    string            // from where, "" for Maven Central; for our own tests
	Port          int               // 0 takes the port of the last time if it is free, else any
	Unsafe        bool              // fsync and full_page_writes off: for unit tests alone
	Settings      map[string]string // more settings of the server, by their PostgreSQL names
	Log           func(string)      // told in one line each what is found, started, downloaded, put elsewhere
}

// Server is a PostgreSQL that runs until Close, or until this process ends.
type Server struct {
	URL     string // a superuser's, with the password, at 127.0.0.1
	Version string // like 15.18
	DataDir string
	Joined  bool // it ran already

	users  *os.File // holds the shared lock, nil for an ephemeral server
	keeper *keeperProcess
}

// Start joins or starts a server and returns when it accepts connections. It gives up when ctx ends, leaving nothing
// running that it started. Faults: Invalid with code no_postgres if there is none to be had, the sentence naming the
// remedies; Conflict with code data_of_another_major if the data directory belongs to another PostgreSQL (it is never
// touched then), or in_use if others use the data that is to be thrown away. MaybeChild must have been called before.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	defer fault.Wrap(&err, "a PostgreSQL for development")
	if !childChecked {
		return nil, errors.New("devpg.MaybeChild() must be the first call of main or TestMain: the server runs under a child of this program")
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	who, err := serverUser()
	if err != nil {
		return nil, err
	}
	if o.Ephemeral {
		return startEphemeral(ctx, o, who)
	}
	return startKept(ctx, o, who)
}

// startEphemeral runs a new server in a temporary directory.
func startEphemeral(ctx context.Context, o Options, who account) (*Server, error) {
	bin, err := findBinaries(o, who)
	if err != nil {
		return nil, err
	}
	temp := who.tempDir(o.Unsafe)
	sweepEphemeral(temp, time.Now())
	dir, err := os.MkdirTemp(temp, "postern-pg-")
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, o, who, bin, dir)
	if err != nil {
		os.RemoveAll(dir)
	}
	return s, err
}

// startKept joins the server of the state directory, or starts it on the data that is there.
func startKept(ctx context.Context, o Options, who account) (*Server, error) {
	root, err := who.stateRoot(o)
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(ctx, filepath.Join(root, "lock"), true)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	bin, findErr := binaries{}, error(nil)
	if o.BinDir != "" { // a caller that names one wants that one, not any server that runs
		if bin, findErr = findBinaries(o, who); findErr != nil {
			return nil, findErr
		}
	}
	if s, err := join(ctx, root, bin.major); s != nil || err != nil {
		if err == nil && o.Reset {
			return nil, errors.Join(fault.New(fault.Conflict, "in_use",
				"%s is in use: stop the other postern dev or demo first, then its data can be thrown away", s.DataDir),
				s.Close())
		}
		return s, err
	}
	if o.BinDir == "" {
		if bin, findErr = findBinaries(o, who); findErr != nil {
			return nil, findErr
		}
	}
	dir := filepath.Join(root, strconv.Itoa(bin.major))
	who = who.ownerOf(dir)
	if err := who.mkdir(dir); err != nil {
		return nil, err
	}
	if err := checkMajor(filepath.Join(dir, "data"), bin.major); err != nil {
		return nil, err
	}
	tellOtherMajors(root, bin.major, o.Log)
	users, err := who.shareUsers(ctx, dir)
	if err != nil {
		return nil, err
	}
	if o.Reset {
		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			return nil, errors.Join(err, users.Close())
		}
	}
	s, err := start(ctx, o, who, bin, dir)
	if err != nil {
		users.Close()
		return nil, err
	}
	s.users = users
	return s, nil
}

// join returns the running server under root with the highest major, or nil if none runs. major 0 is any.
func join(ctx context.Context, root string, major int) (*Server, error) {
	for _, m := range majorsIn(root) {
		dir := filepath.Join(root, strconv.Itoa(m))
		if (major != 0 && m != major) || !running(dir) {
			continue
		}
		users, err := lockFile(ctx, filepath.Join(dir, "users"), false)
		if err != nil {
			return nil, err
		}
		pm, ok := readPostmaster(dir)
		if !ok || !running(dir) { // it was about to stop, and has
			users.Close()
			continue
		}
		u, err := serverURL(dir, pm.port, "postern")
		if err != nil {
			users.Close()
			return nil, err
		}
		version, _ := os.ReadFile(filepath.Join(dir, "version"))
		return &Server{URL: u, Version: strings.TrimSpace(string(version)), DataDir: filepath.Join(dir, "data"),
			Joined: true, users: users}, nil
	}
	return nil, nil
}

// start runs a keeper on dir and waits until its server is ready.
func start(ctx context.Context, o Options, who account, bin binaries, dir string) (*Server, error) {
	if err := who.own(dir); err != nil {
		return nil, err
	}
	k, ready, err := runKeeper(ctx, who, o.Log,
		order{Dir: dir, Binaries: bin.dir, Major: bin.major, Download: bin.download,
			Repository: o.Repository, Port: o.Port, Unsafe: o.Unsafe, Ephemeral: o.Ephemeral, Settings: o.Settings})
	if err != nil {
		return nil, err
	}
	u, err := serverURL(dir, ready.Port, ready.Database)
	if err != nil {
		k.stop()
		return nil, err
	}
	return &Server{URL: u, Version: ready.Version, DataDir: filepath.Join(dir, "data"), keeper: k}, nil
}

// Close ends the use of the server. If we started it and no other process uses it, it has stopped when Close returns.
// If it is still used, it stops when its last user does. Close may be called twice.
func (s *Server) Close() error {
	var err error
	if s.users != nil {
		err = s.users.Close()
		s.users = nil
	}
	if s.keeper != nil {
		err = errors.Join(err, s.keeper.stop())
		s.keeper = nil
	}
	return err
}

// serverURL makes the URL of the superuser from the password file in dir.
func serverURL(dir string, port int, database string) (string, error) {
	password, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		return "", err
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postern", strings.TrimSpace(string(password))),
		Host: fmt.Sprintf("127.0.0.1:%d", port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String(), nil
}
