package main

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

// workerPorts are the ports of this machine at which dev and demo call workers: every one that needs no
// privilege, since loopback addresses are allowed whole.
const workerPorts = "1024-65535"

const devLong = `
	Run everything for development in one process: a PostgreSQL of its own (kept between runs),
	migrated, the API without authentication, and the sequencer. The first two lines are
	DATABASE_URL=... and the address of the API, at which a browser finds the dashboard. The
	environment names no database here: --database-url does, and --yes takes one that others use.

	Then: curl -X PUT .../dispatchers/MY_TYPE -d '{"worker_url": "http://127.0.0.1:9000"}' with
	Content-Type: application/json, and POST /transactions. worker_url noop: needs no worker.

	With --devnet there is also a ledger to submit to and its worker: the next two lines are their
	addresses. Dispatchers take the worker's as worker_url; accounts get their key and money when
	they first sign. See postern worker devnet for what transactions may say.`

func devCommand() *cobra.Command {
	var ephemeral, reset, yes, devnet, attached bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything for development: database, API and sequencer in one",
		Long:  trim(devLong),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			ctx, stop := attach(cmd.Context(), attached)
			defer stop()
			d, err := newDev(cmd, app.DevOptions{Ephemeral: ephemeral, Reset: reset, Yes: yes}, app.Logger)
			if err != nil {
				return err
			}
			say := map[string]string{"api": d.URL(), "database_url": d.Database, "worker_port_range": workerPorts,
				"dashboard": d.Dashboard()}
			lines := fmt.Sprintf("DATABASE_URL=%s\n%s\n", d.Database, d.URL())
			if devnet {
				net, err := startDevnet(cmd.Context(), !ephemeral)
				if err != nil {
					d.Close()
					return err
				}
				defer net.stop() // after the sequencer, whose calls it answers
				say["devnet"], say["devnet_worker"] = net.ledger, net.worker
				lines += net.ledger + "\n" + net.worker + "\n"
			}
			if asked {
				err = printJSON(cmd, say)
			} else {
				_, err = fmt.Fprint(cmd.OutOrStdout(), lines)
			}
			if err != nil {
				d.Close()
				return err
			}
			return d.Run(ctx)
		},
	}
	addDevSettings(cmd, &ephemeral, &yes)
	cmd.Flags().BoolVar(&attached, "attached", false, "end when standard input does")
	cmd.Flags().MarkHidden("attached")
	cmd.Flags().BoolVar(&reset, "reset", false, "throw away the kept database, and begin with a new one")
	cmd.MarkFlagsMutuallyExclusive("reset", "ephemeral")
	cmd.Flags().BoolVar(&devnet, "devnet", false, "run a ledger to submit to and its worker, too")
	return cmd
}

// addDevSettings gives a command the flags of dev and demo.
func addDevSettings(cmd *cobra.Command, ephemeral, yes *bool) {
	addSettings(cmd, devDefaults(), groups...)
	cmd.Flags().Lookup("database-url").Usage = "PostgreSQL 15 or newer; without it one of its own (DATABASE_URL does not count)"
	cmd.Flags().BoolVar(ephemeral, "ephemeral", false, "a new database, thrown away at the end")
	cmd.Flags().BoolVar(yes, "yes", false, "yes, use a database where other processes work or other tables are")
}

// devDefaults are the defaults of dev and demo.
func devDefaults() map[string]string {
	all := map[string]string{}
	for _, d := range []map[string]string{app.WorkDefaults, app.DevDefaults} {
		for k, v := range d {
			all[k] = v
		}
	}
	return all
}

// newDev builds a whole installation. It tells on standard error what happens. If its default port is in use, it takes
// another one; a port that the user named is not given up.
func newDev(cmd *cobra.Command, o app.DevOptions, logger func(app.Config, *os.File) *slog.Logger) (*app.Dev, error) {
	if url := cmd.Flags().Lookup("database-url"); url.Value.String() == "" {
		forgetDatabase(cmd)
	}
	cfg, list, err := settings(cmd, devDefaults())
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		o.Move = o.Move || s.Env == "POSTERN_LISTEN" && s.Origin == "default"
	}
	o.Version, o.Say = version(), func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	d, err := app.NewDev(cmd.Context(), cfg, o, logger(cfg, os.Stderr))
	if err == nil && d.Dashboard() != "" {
		o.Say("dashboard " + d.Dashboard())
	}
	return d, err
}

// forgetDatabase has the environment say nothing of databases to this process, and says so where it named one: a
// variable that another tool needs would let samples go into a database that is in use.
func forgetDatabase(cmd *cobra.Command) {
	var named []string
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "DATABASE_URL", name == "DATABASE_URL_FILE", strings.HasPrefix(name, "PG"):
			os.Unsetenv(name)
		}
		if value != "" && slices.Contains(databaseNames, name) {
			named = append(named, name)
		}
	}
	if len(named) > 0 {
		slices.Sort(named)
		fmt.Fprintf(cmd.ErrOrStderr(),
			"ignored: %s. postern %s uses a database of its own; --database-url names another\n",
			strings.Join(named, ", "), cmd.Name())
	}
}

// databaseNames are the variables by which other commands find a database.
var databaseNames = []string{"DATABASE_URL", "DATABASE_URL_FILE", "PGHOST", "PGSERVICE", "PGDATABASE"}
