package app

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// Config is every setting of a process. The variable POSTERN_LEASE_TTL is the flag --lease-ttl; the tag
// group says which commands know it, secret that it is never printed. Queues, senders and dispatchers
// are no settings: they are rows.
type Config struct {
	DatabaseURL string `env:"DATABASE_URL" group:"database" secret:"true" help:"PostgreSQL 15 or newer; without it PGHOST and its like count"`

	Listen           string   `env:"POSTERN_LISTEN" envDefault:"127.0.0.1:8080" group:"http" help:"address of the API"`
	Auth             string   `env:"POSTERN_AUTH" envDefault:"required" group:"http" help:"required, or none (on loopback addresses only)"`
	BootstrapKeyFile string   `env:"POSTERN_BOOTSTRAP_KEY_FILE" group:"http" help:"file with the first admin key of the context system"`
	OIDCIssuers      []string `env:"POSTERN_OIDC_ISSUERS" group:"http" help:"identity providers whose tokens are taken, as in their iss, with commas between (none)"`
	OIDCAudiences    []string `env:"POSTERN_OIDC_AUDIENCES" group:"http" help:"audience that such a token must name, as in its aud"`

	OIDCClientID     string `env:"POSTERN_OIDC_CLIENT_ID" group:"http" help:"the dashboard, at the first issuer (none)"`
	OIDCClientSecret string `env:"POSTERN_OIDC_CLIENT_SECRET" group:"http" secret:"true" help:"its secret there (none)"`

	PublicURL    string `env:"POSTERN_PUBLIC_URL" group:"http" help:"of the API: signed requests name it"`
	Registration string `env:"POSTERN_REGISTRATION" envDefault:"closed" group:"http" help:"of actors: open or closed"`

	MaxBody  Size `env:"POSTERN_MAX_BODY" envDefault:"1MiB" group:"http" help:"largest body of a request"`
	MaxBatch int  `env:"POSTERN_MAX_BATCH" envDefault:"1000" group:"http" help:"most transactions in a batch"`

	ConfigFile  string `env:"POSTERN_CONFIG_FILE" group:"http" help:"file or directory to apply at the start (none)"`
	ConfigLabel string `env:"POSTERN_CONFIG_LABEL" group:"http" help:"label under which it is applied (none)"`
	ConfigPrune bool   `env:"POSTERN_CONFIG_PRUNE" group:"http" help:"remove what only the label named before"`

	Rate Rate `env:"POSTERN_RATE" envDefault:"off" group:"http" help:"requests a second that one key may make of this process, or off"`

	UI string `env:"POSTERN_UI" envDefault:"on" group:"http" help:"on: the dashboard is under /ui; or off"`

	DrainDelay time.Duration `env:"POSTERN_DRAIN_DELAY" envDefault:"0s" group:"http" help:"how long everything is still answered when stopping, after readiness has dropped"`

	DebugClock bool `env:"POSTERN_DEBUG_CLOCK" group:"http" help:"let POST /debug/clock move the time (dev does)"`

	Deployment      string         `env:"POSTERN_DEPLOYMENT" group:"work" help:"name of this installation: a database that ran under another is taken for a copy, and sends nothing (none)"`
	NodeName        string         `env:"POSTERN_NODE_NAME" group:"work" help:"name of this process in leases and logs (host-pid)"`
	Types           []string       `env:"POSTERN_TYPES" group:"work" help:"transaction types to work on, with commas between (all)"`
	Concurrency     int            `env:"POSTERN_CONCURRENCY" envDefault:"1000" group:"work" help:"most calls to workers at a time"`
	LeaseTTL        time.Duration  `env:"POSTERN_LEASE_TTL" envDefault:"10s" group:"work" help:"a process silent for so long loses its queues"`
	Retention       Days           `env:"POSTERN_RETENTION" envDefault:"keep" group:"work" help:"days that what has ended stays at least, or keep: it is never dropped"`
	WorkerAllowCIDR []netip.Prefix `env:"POSTERN_WORKER_ALLOW_CIDR" group:"work" help:"private ranges in which workers, webhooks and callbacks may live (none)"`
	SourceSchemas   []string       `env:"POSTERN_SOURCE_SCHEMAS" group:"work" help:"schemas of this database that sources of kind postgres_table may read, with commas between (none)"`
	SigningKey      SigningKey     `env:"POSTERN_SIGNING_KEY" group:"work" secret:"true" help:"ed25519 key that signs calls of tools, and webhooks besides their secrets, in PEM or whsk_ (none)"`

	Mycelium string `env:"POSTERN_MYCELIUM" group:"work" help:"local Mycelium node, for mycelium: URLs (none)"`

	MetricsListen string `env:"POSTERN_METRICS_LISTEN" envDefault:"127.0.0.1:9090" group:"metrics" help:"address of GET /metrics, /livez and /readyz, or off; where that default is taken, another port is"`
	OTLPEndpoint  string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" group:"metrics" help:"collector of traces, OTLP over HTTP in JSON (off)"`

	ShutdownGrace time.Duration `env:"POSTERN_SHUTDOWN_GRACE" envDefault:"5s" group:"stop" help:"how long calls in flight may take when stopping"`

	LogLevel  slog.Level `env:"POSTERN_LOG_LEVEL" envDefault:"info" group:"log" help:"debug, info, warn or error"`
	LogFormat string     `env:"POSTERN_LOG_FORMAT" envDefault:"auto" group:"log" help:"text, json, or auto: text on a terminal"`

	StateDir   string `env:"POSTERN_STATE_DIR" group:"dev" help:"where the development database is kept ($XDG_STATE_HOME/postern)"`
	PGBin      string `env:"POSTERN_PG_BIN" group:"dev" help:"directory of initdb and postgres (looked for)"`
	PGDownload bool   `env:"POSTERN_PG_DOWNLOAD" envDefault:"true" group:"dev" help:"download a PostgreSQL if none is installed"`
}

// Validate says which setting cannot be, and what would be right. It fills in the node's name.
func (c *Config) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return invalid("listen", c.Listen, "want host:port, such as 127.0.0.1:8080 or :8080")
	}
	if !slices.Contains([]string{"required", "none"}, c.Auth) {
		return invalid("auth", c.Auth, "want required or none")
	}
	if !slices.Contains([]string{"on", "off"}, c.UI) {
		return invalid("ui", c.UI, "want on or off")
	}
	if _, _, err := net.SplitHostPort(c.MetricsListen); err != nil && c.MetricsListen != "off" {
		return invalid("metrics-listen", c.MetricsListen, "want host:port, such as 127.0.0.1:9090 or :9090, or off")
	}
	if c.Auth == "none" && !loopback(host) {
		return invalid("listen", c.Listen, "without authentication Postern listens on loopback addresses only, such as 127.0.0.1:8080: set POSTERN_AUTH=required or listen there")
	}
	if err := c.validateActors(); err != nil {
		return err
	}
	if err := c.validateMycelium(); err != nil {
		return err
	}
	for _, schema := range c.SourceSchemas {
		if !leader.Readable(schema) {
			return invalid("source-schemas", schema, "want schemas of applications, of letters, digits and _: not those of PostgreSQL, Postern or River")
		}
	}
	if !slices.Contains([]string{"auto", "text", "json"}, c.LogFormat) {
		return invalid("log-format", c.LogFormat, "want auto, text or json")
	}
	switch {
	case c.MaxBody < 1<<10 || c.MaxBody > 64<<20:
		return invalid("max-body", c.MaxBody, "want 1KiB to 64MiB")
	case c.MaxBatch < 1 || c.MaxBatch > 10000:
		return invalid("max-batch", c.MaxBatch, "want 1 to 10000")
	case c.Concurrency < 1 || c.Concurrency > 100000:
		return invalid("concurrency", c.Concurrency, "want 1 to 100000")
	case c.LeaseTTL < time.Second || c.LeaseTTL > 10*time.Minute:
		return invalid("lease-ttl", c.LeaseTTL, "want 1s to 10m")
	case c.DrainDelay < 0 || c.DrainDelay > 10*time.Minute:
		return invalid("drain-delay", c.DrainDelay, "want 0s to 10m: longer than proxies take to see that it is not ready")
	case c.ShutdownGrace < 0:
		return invalid("shutdown-grace", c.ShutdownGrace, "want 0s or more")
	}
	if c.ConfigPrune && (c.ConfigLabel == "" || c.ConfigFile == "") {
		return invalid("config-prune", c.ConfigPrune,
			"want --config-file and --config-label beside it: only what was applied under a label is removed")
	}
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			name = "node"
		}
		c.NodeName = fmt.Sprintf("%s-%d", name, os.Getpid())
	}
	return nil
}

// validateActors says which setting of those who sign their requests, or bring tokens, cannot be.
func (c *Config) validateActors() error {
	if !slices.Contains([]string{"open", "closed"}, c.Registration) {
		return invalid("registration", c.Registration,
			"want open, so that everybody may become an actor by a request signed with its key, or closed")
	}
	u, err := url.Parse(c.PublicURL)
	if c.PublicURL != "" && (err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && u.Scheme != "http") {
		return invalid("public-url", c.PublicURL,
			"want http or https, a host and perhaps a path, such as https://postern.example.com")
	}
	return c.validateOIDC()
}

// validateMycelium wants the address of a node.
func (c *Config) validateMycelium() error {
	u, err := url.Parse(c.Mycelium)
	if c.Mycelium != "" && (err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Trim(u.Path, "/") != "" || u.Scheme != "https" && u.Scheme != "http") {
		return invalid("mycelium", c.Mycelium, "want the address of its API, such as http://127.0.0.1:8989")
	}
	return nil
}

// validateOIDC says which setting of identity providers cannot be.
func (c *Config) validateOIDC() error {
	for _, issuer := range c.OIDCIssuers {
		if u, err := url.Parse(issuer); err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
			return invalid("oidc-issuers", issuer, "want https://host/path, as its tokens have it in iss")
		}
	}
	if (len(c.OIDCIssuers) == 0) != (len(c.OIDCAudiences) == 0) {
		return invalid("oidc-audiences", strings.Join(c.OIDCAudiences, ","), "want issuers and audiences together: a token that is meant for another service is none of ours")
	}
	switch {
	case c.OIDCClientID != "" && len(c.OIDCIssuers) == 0:
		return invalid("oidc-client-id", c.OIDCClientID,
			"want --oidc-issuers beside it: people sign in at the first of them")
	case c.OIDCClientSecret != "" && c.OIDCClientID == "":
		return invalid("oidc-client-secret", "xxxxx",
			"want --oidc-client-id beside it: it is the secret of that client")
	}
	return nil
}

func invalid(flag string, value any, want string) error {
	return fault.New(fault.Invalid, "bad_setting", "--%s (%s) is %q: %s", flag, variable(flag), fault.Clip(fmt.Sprint(value)), want)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
