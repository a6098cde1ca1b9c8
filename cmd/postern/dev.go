package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

// workerPorts are the ports of this machine at which dev and demo call workers: every one that needs no
// privilege, since loopback addresses are allowed whole.
const workerPorts = "1024-65535"

func devCommand() *cobra.Command {
	var ephemeral, reset, devnet bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything for development: database, API and sequencer in one",
		Long: trim(`
			Run everything for development in one process: a PostgreSQL of its own (kept between runs; one
			that DATABASE_URL or PGHOST names wins), migrated, the API without authentication, and the
			sequencer. The first two lines are DATABASE_URL=... and the address of the API.

			Then: curl -X PUT .../dispatchers/MY_TYPE -d '{"worker_url": "http://127.0.0.1:9000"}' with
			Content-Type: application/json, and POST /transactions. worker_url noop: needs no worker.

			With --devnet there is also a ledger to submit to and its worker: the next two lines are their
			addresses. Dispatchers take the worker's as worker_url; accounts get their key and money when
			they first sign. See postern worker devnet for what transactions may say.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd, false)
			if err != nil {
				return err
			}
			d, err := newDev(cmd, ephemeral, reset, app.Logger)
			if err != nil {
				return err
			}
			say := map[string]string{"api": d.URL(), "database_url": d.Database, "worker_port_range": workerPorts}
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
			return d.Run(cmd.Context())
		},
	}
	addDevSettings(cmd, &ephemeral)
	cmd.Flags().BoolVar(&reset, "reset", false, "throw away the kept database, and begin with a new one")
	cmd.MarkFlagsMutuallyExclusive("reset", "ephemeral")
	cmd.Flags().BoolVar(&devnet, "devnet", false, "run a ledger to submit to and its worker, too")
	return cmd
}

// addDevSettings gives a command the flags of dev and demo.
func addDevSettings(cmd *cobra.Command, ephemeral *bool) {
	addSettings(cmd, devDefaults(), groups...)
	cmd.Flags().BoolVar(ephemeral, "ephemeral", false, "a new database, thrown away at the end")
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

// newDev builds a whole installation. What happens is told on standard error; a port that nobody asked
// for is given up where it is in use.
func newDev(cmd *cobra.Command, ephemeral, reset bool, logger func(app.Config, *os.File) *slog.Logger) (*app.Dev, error) {
	cfg, list, err := settings(cmd, devDefaults())
	if err != nil {
		return nil, err
	}
	move := false
	for _, s := range list {
		move = move || s.Env == "POSTERN_LISTEN" && s.Origin == "default"
	}
	return app.NewDev(cmd.Context(), cfg, app.DevOptions{Ephemeral: ephemeral, Reset: reset, Move: move, Version: version(),
		Say: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }}, logger(cfg, os.Stderr))
}
