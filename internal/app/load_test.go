package app

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

func TestAFlagBeatsTheEnvironmentWhichBeatsADefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("postgres://a:secret@db/postern\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, settings, err := Load(Layers{
		Flags:    map[string]string{"listen": "127.0.0.1:1"},
		Environ:  map[string]string{"POSTERN_LISTEN": "127.0.0.1:2", "POSTERN_LEASE_TTL": "3s", "DATABASE_URL_FILE": file, "POSTERN_TYPES": "A,B", "POSTERN_AUTH": ""},
		Defaults: map[string]string{"POSTERN_LEASE_TTL": "4s", "POSTERN_SHUTDOWN_GRACE": "30s"}, Command: "work",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:1" || c.LeaseTTL != 3*time.Second || c.ShutdownGrace != 30*time.Second || c.Auth != "required" ||
		c.DatabaseURL != "postgres://a:secret@db/postern" || !reflect.DeepEqual(c.Types, []string{"A", "B"}) || c.MaxBody != 1<<20 {
		t.Errorf("loaded %+v", c)
	}
	origins := map[string]string{"POSTERN_LISTEN": "flag --listen", "POSTERN_LEASE_TTL": "POSTERN_LEASE_TTL", "POSTERN_SHUTDOWN_GRACE": "default of work",
		"POSTERN_AUTH": "default", "DATABASE_URL": "DATABASE_URL_FILE"}
	for _, s := range settings {
		if want := origins[s.Env]; want != "" && s.Origin != want {
			t.Errorf("%s comes from %q, want %q", s.Env, s.Origin, want)
		}
		if strings.Contains(s.Value, "secret") {
			t.Errorf("%s shows a secret: %s", s.Env, s.Value)
		}
	}
}

func TestASettingThatCannotBeIsRefusedByItsName(t *testing.T) {
	for env, bad := range map[string]string{
		"POSTERN_LISTEN": "8080", "POSTERN_AUTH": "maybe", "POSTERN_MAX_BODY": "lots", "POSTERN_MAX_BATCH": "0",
		"POSTERN_CONCURRENCY": "many", "POSTERN_LEASE_TTL": "10", "POSTERN_SHUTDOWN_GRACE": "-1s", "POSTERN_WORKER_ALLOW_CIDR": "10.0.0.0",
		"POSTERN_LOG_LEVEL": "loud", "POSTERN_LOG_FORMAT": "xml", "POSTERN_PG_DOWNLOAD": "perhaps", "DATABASE_URL_FILE": "/nowhere/at/all",
	} {
		_, _, err := Load(Layers{Environ: map[string]string{env: bad}})
		if fault.CodeOf(err) != "bad_setting" || !strings.Contains(err.Error(), env) {
			t.Errorf("%s=%s: %v; want a fault that names it", env, bad, err)
		}
	}
	_, _, err := Load(Layers{Environ: map[string]string{"DATABASE_URL": "postgres://a", "DATABASE_URL_FILE": "/b"}})
	if fault.CodeOf(err) != "bad_setting" {
		t.Errorf("a secret given twice: %v", err)
	}
}

func TestWithoutAuthenticationOnlyLoopbackIsServed(t *testing.T) {
	for listen, ok := range map[string]bool{"127.0.0.1:0": true, "[::1]:8080": true, "localhost:80": true, ":8080": false, "0.0.0.0:1": false, "192.0.2.1:80": false} {
		_, _, err := Load(Layers{Environ: map[string]string{"POSTERN_AUTH": "none", "POSTERN_LISTEN": listen}})
		if (err == nil) != ok {
			t.Errorf("POSTERN_AUTH=none on %s: %v", listen, err)
		}
	}
}

func TestPasswordsAreMaskedInEveryFormOfADatabaseURL(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		"postgres://a:hush@db:5432/p?sslmode=disable": "postgres://a:xxxxx@db:5432/p?sslmode=disable",
		"postgres://db/p?user=a&password=hush":        "postgres://db/p?user=a&password=xxxxx",
		"host=db user=a password=hush dbname=p":       "host=db user=a password=xxxxx dbname=p",
		"host=db password='hu sh' dbname=p":           "host=db password=xxxxx dbname=p",
		"hush":                                        "xxxxx",
	} {
		if got := mask(in); got != want {
			t.Errorf("mask(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEveryVariableIsOneThatTheSurfaceNames(t *testing.T) {
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its list of variables is not compared: ", err)
	}
	later := map[string]string{
		"POSTERN_SOURCE_SCHEMAS":     "the page lets an admin of a context name any table that the role of the process may read",
		"POSTERN_CONFIG_FILE":        "a deployment is a file",
		"POSTERN_CONFIG_LABEL":       "as above: what the file names no more can be removed",
		"POSTERN_CONFIG_PRUNE":       "as above",
		"POSTERN_UI":                 "the dashboard came after the page",
		"POSTERN_OIDC_CLIENT_ID":     "as above: people sign in to it",
		"POSTERN_OIDC_CLIENT_SECRET": "as above",
		"POSTERN_MYCELIUM":           "workers behind an overlay network came after the page",
		"POSTERN_DRAIN_DELAY":        "that restarts lose no request was found wanting when it was tried",
	}
	for _, f := range Fields() {
		if later[f.Env] == "" && !strings.Contains(string(page), f.Env) && !strings.Contains(string(page), "`--"+f.Name+"`") { // each is both
			t.Errorf("%s is a setting that the design's page of the surface does not name", f.Env)
		}
		if f.Help == "" || f.Group == "" {
			t.Errorf("%s has no help or no group: no command would show it", f.Env)
		}
	}
}

// unbuilt are the settings of the design that do not exist, with the reason.
var unbuilt = map[string]string{
	"POSTERN_REPORT_DATABASE_URL": "reports read narrow indexes and figures by the hour of the primary",
}

// TestEveryVariableOfTheDesignIsThereOrExplained compares the settings with those of the design.
func TestEveryVariableOfTheDesignIsThereOrExplained(t *testing.T) {
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its list of variables is not compared: ", err)
	}
	have := map[string]bool{"POSTERN_TEST_DATABASE_URL": true, "POSTERN_URL": true, "POSTERN_API_KEY": true, "POSTERN_CONTEXT": true, "POSTERN_OUTPUT": true} // of clients, and tests
	for _, f := range Fields() {
		have[f.Env], have[f.Env+"_FILE"] = true, true
	}
	for _, name := range regexp.MustCompile(`\bPOSTERN_[A-Z_]+\b`).FindAllString(string(page), -1) {
		if !have[name] && unbuilt[name] == "" {
			t.Errorf("%s of the design is no setting, and unbuilt does not say why", name)
		}
	}
}

func TestSizesAreReadAsPeopleWriteThem(t *testing.T) {
	for in, want := range map[string]Size{"1MiB": 1 << 20, "512KiB": 512 << 10, "100": 100, "7 B": 7, "1GiB": 1 << 30} {
		var s Size
		if err := s.UnmarshalText([]byte(in)); err != nil || s != want {
			t.Errorf("%q is %d, %v; want %d", in, s, err, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1KiB", "1.5MiB", "1MB", "99999999999GiB"} {
		if new(Size).UnmarshalText([]byte(in)) == nil {
			t.Errorf("%q was taken for a size", in)
		}
	}
	if got := Size(1536 << 10).String(); got != "1536KiB" {
		t.Errorf("1.5 MiB is written %s", got)
	}
}
