package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
)

// eitherWay makes a command one that asks the API, or the database itself: a restored database has no API.
func eitherWay(cmd *cobra.Command) *cobra.Command {
	asClient(cmd)
	addSettings(cmd, nil, "database")
	return cmd
}

// atDatabase opens the database where the command is to ask that; nil where it is to ask the API. A flag says which of
// the two. Without one, both variables may stand, and name two installations: a restored database and the API of the
// live system. Then a command that changes something is refused; one that reads asks the API, and says where.
func atDatabase(cmd *cobra.Command) (*app.Quarantine, error) {
	if f := cmd.Flags().Lookup("reason"); f != nil && f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return nil, fault.At("/reason", "reason is empty: say why, it is kept with who and when")
	}
	cfg, _, err := settings(cmd)
	if err != nil {
		return nil, err
	}
	_, none := cfg.Database()
	api, database := cmd.Flags().Changed("url"), cmd.Flags().Changed("database-url")
	at := os.Getenv("POSTERN_URL")
	switch {
	case api && database:
		return nil, usage(cmd, errors.New("--url and --database-url: give one of them, the API is asked or the database itself"))
	case none != nil, api:
		return nil, nil
	case !database && at != "" && cmd.Flags().Lookup("reason") != nil:
		return nil, &failure{exitUsage, `say which is meant: --database-url "$DATABASE_URL", or --url "$POSTERN_URL"`,
			fmt.Errorf("POSTERN_URL names the API at %s, and DATABASE_URL %s: these may be two installations, "+
				"and nothing was changed", shownURL(cmd), placeOf(cfg))}
	case !database && at != "":
		return nil, nil
	}
	q, err := app.NewQuarantine(cmd.Context(), cfg)
	return q, advised(cmd, err)
}

// shownURL is the address of the API without a password.
func shownURL(cmd *cobra.Command) string {
	u, err := url.Parse(urlOf(cmd))
	if err != nil {
		return urlOf(cmd)
	}
	return u.Redacted()
}

// placeOf names the configured database in a sentence, without its password.
func placeOf(cfg app.Config) string {
	database, err := cfg.Database()
	if err != nil {
		return "no database"
	}
	return "the database " + app.Masked(database)
}

// placeAsked says in an answer where a command was carried out: in the database that was opened, or at the API.
func placeAsked(cmd *cobra.Command, at *app.Quarantine) string {
	if at == nil {
		return "at " + shownURL(cmd)
	}
	cfg, _, err := settings(cmd)
	if err != nil {
		return ""
	}
	return "in " + placeOf(cfg)
}

// answersWithin is how long the API may take to say that it is alive. One that is stopped, or hangs, is told from one
// that works.
const answersWithin = 5 * time.Second

// dialAlive is dial for the commands of a quarantine, which are given when things are down: it says where else to ask.
func dialAlive(cmd *cobra.Command) (*door, error) {
	d, err := dial(cmd)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(cmd.Context(), answersWithin)
	defer cancel()
	res, err := d.Do(soon, http.MethodGet, "/livez", nil, nil)
	if err != nil {
		return nil, &failure{exitUnreachable, elsewhere(cmd), err}
	}
	res.Body.Close()
	return d, nil
}

// elsewhere is what to do where no API answers.
func elsewhere(cmd *cobra.Command) string {
	start := "start `postern serve`, or say where it is with --url or POSTERN_URL"
	cfg, _, err := settings(cmd)
	_, none := cfg.Database()
	switch {
	case cmd.Name() == "reconcile":
		return "reconcile needs a running API, from which it calls the workers; a database alone is not enough: " + start
	case err != nil || none != nil:
		return start + "; where none is to run yet, as after a restore, give --database-url, and the database itself is asked"
	case cmd.Flags().Changed("url"):
		return "leave out --url and give --database-url, and the database itself is asked; or " + start
	}
	return "give --database-url, and the database itself is asked, as after a restore; or " + start
}

// advised makes of an error what the operator of a quarantine can do about it. Where API or database break off, the
// command may be given again: each of them can be repeated.
func advised(cmd *cobra.Command, err error) error {
	var told *failure
	var lost *url.Error
	var p *client.Problem
	var f *fault.Error
	again := "`" + cmd.CommandPath() + "` again"
	if cmd.Name() == "reconcile" {
		again += ", which goes on where it was"
	}
	switch {
	case err == nil, errors.As(err, &told):
		return err
	case errors.As(err, &lost):
		return &failure{exitUnreachable, "see that `postern serve` runs, then " + again, err}
	case errors.As(err, &p) && p.Status == http.StatusServiceUnavailable:
		return broke(p.Code, again, err)
	case errors.As(err, &f) && f.Kind == fault.Retry && f.Code != "two_primaries":
		if errors.As(err, new(*pgconn.ConnectError)) && errors.As(err, new(*pgconn.PgError)) { // the server refuses us
			return &failure{exitUnreachable, nextOf(err), err}
		}
		return broke(f.Code, again, err)
	case refusedAs(err, "wrong_state"), refusedAs(err, "not_found"), fault.CodeOf(err) == "wrong_state", fault.CodeOf(err) == "not_found":
		return &failure{exitBad, "`postern quarantine status` lists what is in quarantine, and what is next", err}
	}
	return err
}

// broke is the end of a command whose database, or whose API, broke off while it was under way.
func broke(code, again string, err error) error {
	if code == "commit_unknown" { // its sentence is for posts, which have a key
		err = errors.New("the database did not say whether this was done")
	}
	return &failure{exitUnreachable, "when the database answers (`postern doctor` looks at it), " + again, err}
}
