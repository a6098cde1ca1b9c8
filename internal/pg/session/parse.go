package session

import (
	"context"
	"crypto/tls"
	"iter"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/watch"
)

// Config is what DATABASE_URL says, with the settings on which our SQL rests.
type Config struct {
	*pgxpool.Config
	Sized    bool     // the URL says how many connections a pool has
	Warnings []string // a sentence for each parameter that is ignored

	unasked map[string]bool // settings that are left to role and database
	url     string
	pooled  bool // a pooler stands before the database
}

// leastStatements is how many prepared statements a connection keeps at least: fewer than we have would be prepared
// again and again.
const leastStatements = 512

// Parse reads DATABASE_URL for every command: a URL, or words like host=a dbname=b. The environment (PGHOST and its
// like) and the service file say the rest. Fault bad_setting names the parameter that cannot be used.
func Parse(database string) (*Config, error) {
	if os.Getenv("PGHOSTADDR") != "" {
		return nil, fault.New(fault.Invalid, "bad_setting", "PGHOSTADDR is not for Postern: set PGHOST to the address")
	}
	pool, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_setting",
			"DATABASE_URL cannot be read: %s; want postgres://user@host:5432/name", unread(err))
	}
	raw, err := pgconn.ParseConfig(database) // with what is for pgx alone
	if err != nil {
		return nil, err
	}
	c := &Config{Config: pool, url: database}
	_, c.pooled = poolers.Load(database)
	_, c.Sized = raw.RuntimeParams["pool_max_conns"]
	given := map[string]string{}
	if n, ok := raw.RuntimeParams["description_cache_capacity"]; ok {
		given["description_cache_capacity"] = n
	}
	for name, value := range map[string]string{"krbsrvname": raw.KerberosSrvName, "krbspn": raw.KerberosSpn} {
		if value != "" { // the driver keeps them apart from what it sends
			given[name] = value
		}
	}
	for name, value := range pool.ConnConfig.RuntimeParams {
		given[strings.ToLower(name)] = value
	}
	if err := c.withTLS(given); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.hosts(), func(host string) bool { return strings.Contains(host, "@") }) {
		return nil, bad("there is an @ in its password or its user: write it as %%40")
	}
	c.Warnings, err = apply(given, func(name string) bool {
		return name == "timezone" && given[name] == os.Getenv("PGTZ")
	})
	if err != nil {
		return nil, err
	}
	if mode := pool.ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheStatement {
		return nil, bad("default_query_exec_mode=%s cannot be had: Postern's statements are prepared. Leave it out, "+
			"and connect to PostgreSQL itself where a pooler does not keep prepared statements", modeOf(mode))
	}
	if n := pool.ConnConfig.StatementCacheCapacity; n < leastStatements {
		return nil, bad("statement_cache_capacity=%d is too small: want %d or more, or leave it out",
			n, leastStatements)
	}
	pool.ConnConfig.RuntimeParams = given
	next := pool.ConnConfig.ValidateConnect
	pool.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := told(conn.ParameterStatus); err != nil || next == nil {
			return err
		}
		return next(ctx, conn)
	}
	return c, nil
}

// Connect opens one connection that is watched, for a command that does one thing and ends: the server ends no
// statement of it. Faults: those of Parse and of Judge.
func Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	c, err := Parse(database)
	if err != nil {
		return nil, err
	}
	return c.Connect(ctx)
}

// Connect is Connect for a URL that has been read.
func (c *Config) Connect(ctx context.Context) (*pgx.Conn, error) {
	c.Unlimited()
	conn, err := c.connect(ctx)
	if c.pooled || !PerhapsPooler(err) {
		return conn, err
	}
	if err := c.keepsSessions(ctx); err != nil {
		return nil, err
	}
	poolers.Store(c.url, true)
	c.pooled = true
	return c.connect(ctx)
}

// connect opens a connection and judges it.
func (c *Config) connect(ctx context.Context) (*pgx.Conn, error) {
	at := &Config{Config: &pgxpool.Config{ConnConfig: c.ConnConfig.Copy()}, pooled: c.pooled}
	at.Settle()
	watch.Configure(at.ConnConfig)
	conn, err := pgx.ConnectConfig(ctx, at.ConnConfig)
	if err != nil {
		return nil, Explain(err)
	}
	if err := judge(ctx, conn, c.unasked, c.pooled); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// Unlimited has the server end nothing by its time, whatever role, database and URL say.
func (c *Config) Unlimited() {
	for _, name := range limits {
		c.ConnConfig.RuntimeParams[name] = "0"
	}
}

// Leave asks for no settings of these names: the session has what role and database give to everybody.
func (c *Config) Leave(names ...string) {
	c.unasked = map[string]bool{}
	for _, name := range names {
		delete(c.ConnConfig.RuntimeParams, name)
		c.unasked[name] = true
	}
}

// withTLS keeps the versions of TLS that the URL asks for; pgx does not know these parameters.
func (c *Config) withTLS(given map[string]string) error {
	versions := map[string]uint16{
		"TLSv1":   tls.VersionTLS10,
		"TLSv1.1": tls.VersionTLS11,
		"TLSv1.2": tls.VersionTLS12,
		"TLSv1.3": tls.VersionTLS13,
	}
	for _, name := range []string{"ssl_min_protocol_version", "ssl_max_protocol_version"} {
		value, ok := given[name]
		if !ok {
			continue
		}
		delete(given, name)
		version, known := versions[value]
		if !known {
			return bad("%s=%s is not known: want TLSv1.2 or TLSv1.3", name, value)
		}
		for cfg := range c.tls() {
			if name == "ssl_min_protocol_version" {
				cfg.MinVersion = version
			} else {
				cfg.MaxVersion = version
			}
		}
	}
	return nil
}

// tls are the configurations of TLS of all hosts.
func (c *Config) tls() iter.Seq[*tls.Config] {
	return func(yield func(*tls.Config) bool) {
		if cfg := c.ConnConfig.TLSConfig; cfg != nil && !yield(cfg) {
			return
		}
		for _, f := range c.ConnConfig.Fallbacks {
			if f.TLSConfig != nil && !yield(f.TLSConfig) {
				return
			}
		}
	}
}

// hosts are those that are asked one after the other.
func (c *Config) hosts() []string {
	list := []string{c.ConnConfig.Host}
	for _, f := range c.ConnConfig.Fallbacks {
		list = append(list, f.Host)
	}
	return list
}

// noNumber is what the driver says of a parameter that wants a number.
var noNumber = regexp.MustCompile(`invalid (\w+) \(strconv`)

// unread says what is wrong with a DATABASE_URL, in place of the words of the driver. The driver has hidden the
// password.
func unread(err error) string {
	said := strings.TrimPrefix(err.Error(), "cannot parse ")
	value, why, ok := strings.Cut(said, "`: ")
	value = strings.TrimPrefix(value, "`")
	switch {
	case !ok:
		return said
	case noNumber.MatchString(why):
		why = noNumber.FindStringSubmatch(why)[1] + " is no whole number"
	case strings.HasPrefix(why, "failed to parse as URL"):
		why = "it is no URL: in user and password @ is written %40, / is %2F, : is %3A and % is %25"
	case strings.HasPrefix(why, "failed to parse as keyword/value"):
		why = "it begins with no postgres://, and has no words such as host=a dbname=b"
	case strings.HasPrefix(why, "invalid port"):
		why = "its port is no number from 1 to 65535"
	case strings.Contains(why, "sslmode is invalid"):
		why = "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full"
	}
	return "in " + value + " " + why
}

// modeOf is a mode as the URL says it.
func modeOf(mode pgx.QueryExecMode) string {
	switch mode {
	case pgx.QueryExecModeCacheDescribe:
		return "cache_describe"
	case pgx.QueryExecModeDescribeExec:
		return "describe_exec"
	case pgx.QueryExecModeExec:
		return "exec"
	case pgx.QueryExecModeSimpleProtocol:
		return "simple_protocol"
	}
	return mode.String()
}

// Named is a DATABASE_URL for another database of the same server, with all else that it says. A URL is cut by hand:
// the driver takes passwords in it that net/url does not.
func Named(database, name string) (string, error) {
	if _, err := Parse(database); err != nil {
		return "", err
	}
	scheme, rest, ok := strings.Cut(database, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return namedIn(database, name)
	}
	where, query, _ := strings.Cut(rest, "?")
	where, _, _ = strings.Cut(where, "/")
	var kept []string
	for _, said := range strings.Split(query, "&") {
		key, _, _ := strings.Cut(said, "=")
		if plain, err := url.PathUnescape(key); err == nil && plain != "" && plain != "dbname" && plain != "database" {
			kept = append(kept, said)
		}
	}
	named := scheme + "://" + where + "/" + url.PathEscape(name)
	if len(kept) > 0 {
		named += "?" + strings.Join(kept, "&")
	}
	return named, nil
}

// namedIn is Named for words: where one is said twice, the last counts.
func namedIn(words, name string) (string, error) {
	for _, end := range []string{" ", " '' "} { // a word without a value would take what follows for it
		named := words + end + "dbname='" + name + "'"
		if c, err := Parse(named); err == nil && c.ConnConfig.Database == name {
			return named, nil
		}
	}
	return "", bad("no database can be added to it: write it as a URL")
}
