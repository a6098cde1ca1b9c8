package session

import (
	"context"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
)

// ConnectOther connects to the database of an application, whose URL came in from outside, through dial. Of the URL
// host, port, user, database and sslmode count; each is set by itself, so that no two readers of URLs can differ about
// it. The password comes from the password file, which knows it by host; not from PGPASSWORD, which would be told to
// any host. A session asks for UTF8 alone: any pooler may stand there, and statements are not prepared. Faults:
// bad_setting, database_unfit; other errors are those of the driver.
func ConnectOther(ctx context.Context, text string, dial pgconn.DialFunc) (*pgx.Conn, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_setting", "the URL cannot be read")
	}
	word := func(name, v string) string {
		return name + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v) + "'"
	}
	words := []string{
		"password=''",
		word("host", u.Hostname()),
		word("user", u.User.Username()),
		word("dbname", strings.TrimPrefix(u.Path, "/")),
	}
	if port := u.Port(); port != "" {
		words = append(words, word("port", port))
	}
	if mode := u.Query().Get("sslmode"); mode != "" {
		words = append(words, word("sslmode", mode))
	}
	cfg, err := pgx.ParseConfig(strings.Join(words, " "))
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_setting", "the URL cannot be used: %s", fault.Clip(err.Error()))
	}
	cfg.DialFunc, cfg.DefaultQueryExecMode = dial, pgx.QueryExecModeExec
	cfg.RuntimeParams = map[string]string{"application_name": "postern", "client_encoding": "UTF8"}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding == "SQL_ASCII" {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, notFit("the database has the encoding SQL_ASCII: what its bytes mean is not known")
	}
	return conn, nil
}
