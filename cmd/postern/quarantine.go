package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pg"
)

func quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Keep everything from leaving, and let it go: for restored or copied databases",
		Long: trim(`
			In quarantine nothing leaves: no worker, hook, callback, webhook or tool is called, no source is
			polled. Posts are taken and answered meanwhile, and reads go on. It is for a database that may have
			lost commits or may be a copy. A restored one begins with it, before any process is started:

			  DATABASE_URL=postgres://... postern quarantine enter --reason "restored from the backup of 03:00"
			  postern quarantine status
			  postern quarantine reconcile
			  postern quarantine release --reason "asked, and nothing is open"

			The commands ask the API that --url or POSTERN_URL names, or the database that --database-url or
			DATABASE_URL names, where no process need run; a flag comes before a variable. Where both variables
			stand, a command that changes something wants the flag. reconcile alone needs the API, which calls
			the workers.

			Without a scope it is everything; else contexts/NAME, dispatchers/TYPE, or both: that type of that
			context. docs/restore.md tells how a restore goes.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want enter, status, reconcile or release"))
		},
	}
	cmd.AddCommand(quarantineEnterCommand(), quarantineStatusCommand(),
		quarantineReconcileCommand(), quarantineReleaseCommand())
	return cmd
}

func identityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identity",
		Short: "Say under which deployment a database is meant to run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want announce"))
		},
	}
	cmd.AddCommand(identityAnnounceCommand())
	return cmd
}

const scopeArgs = "[contexts/NAME] [dispatchers/TYPE]"

// scopeOf reads a scope as it is named on the command line.
func scopeOf(cmd *cobra.Command, args []string) (q pg.Quarantine, err error) {
	for _, a := range args {
		noun, name, _ := strings.Cut(a, "/")
		switch {
		case name == "":
			err = errors.New("name it")
		case noun == "contexts" && q.Context == "":
			q.Context = name
		case noun == "dispatchers" && q.Type == "":
			q.Type = name
		default:
			err = errors.New("once each")
		}
		if err != nil {
			return q, usage(cmd,
				fmt.Errorf("%s is no scope: want contexts/NAME, dispatchers/TYPE, or both, or nothing for everything",
					a))
		}
	}
	return q, nil
}

// scopeBody is a scope as the API reads it.
func scopeBody(q pg.Quarantine, more map[string]any) []byte {
	if q.Context != "" {
		more["context"] = q.Context
	}
	if q.Type != "" {
		more["type"] = q.Type
	}
	b, _ := json.Marshal(more)
	return b
}

func quarantineEnterCommand() *cobra.Command {
	var how pulling
	cmd := eitherWay(&cobra.Command{
		Use:   "enter " + scopeArgs,
		Short: "Keep everything, or a part, from leaving",
		Long: trim(`
			Keep everything, or a part, from leaving. Calls that are out end and are recorded; when this returns
			no other begins. With --database-url, or with DATABASE_URL and without POSTERN_URL and --url, it is
			done in the database itself, where no process need run; with both variables say which, by --url or
			--database-url. Where everything enters, commits may be lost: those between the newest that the rows
			show and now. Until its workers were asked about them, release wants --anyway.

			  DATABASE_URL=postgres://... postern quarantine enter --reason "restored from the backup of 03:00"
			  postern quarantine enter dispatchers/PAY --reason "its worker was restored"`),
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := scopeOf(cmd, args)
			if err != nil {
				return err
			}
			at, err := atDatabase(cmd)
			if err != nil {
				return err
			}
			if at == nil {
				return askLever(cmd, "/quarantine/enter", how.dry, scopeBody(q, map[string]any{"reason": how.reason}),
					q.String()+" is in quarantine")
			}
			defer at.Close()
			q.Reason = how.reason
			return enterAt(cmd, at, q, how.dry)
		},
	})
	reasonFlags(cmd, &how)
	return cmd
}

// enterAt enters a quarantine in the database itself, and waits for the processes that may run.
func enterAt(cmd *cobra.Command, at *app.Quarantine, q pg.Quarantine, dry bool) error {
	ctx, end := cmd.Context(), func() {}
	if dry {
		ctx, end = at.DryRun(ctx)
	}
	defer end()
	if err := at.EnterQuarantine(ctx, at.By, q); err != nil {
		return advised(cmd, err)
	}
	r := record{"result": "done", "changed": true}
	if !dry {
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := at.AwaitQuarantine(wait); err != nil {
			r["result"], r["at"] = "pending", err.Error()
		}
	}
	return leverSaid(cmd, at, r, dry, q.String()+" is in quarantine")
}

func reasonFlags(cmd *cobra.Command, how *pulling) {
	cmd.Flags().StringVar(&how.reason, "reason", "", "why; kept with who and when")
	cmd.Flags().BoolVar(&how.dry, "dry-run", false, "say what would change, and change nothing")
	cmd.MarkFlagRequired("reason")
}

// askLever pulls a lever that has no object in its path.
func askLever(cmd *cobra.Command, path string, dry bool, body []byte, done string) error {
	d, err := dialAlive(cmd)
	if err != nil {
		return err
	}
	if dry {
		path += "?dry_run=true"
	}
	_, _, b, err := d.raw(http.MethodPost, path, body)
	if err != nil {
		return advised(cmd, err)
	}
	r, err := parse(b)
	if err != nil {
		return err
	}
	return leverSaid(cmd, nil, r, dry, done)
}

// leverSaid prints what a lever did, and where: at is the database that was asked, nil for the API.
func leverSaid(cmd *cobra.Command, at *app.Quarantine, r record, dry bool, done string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	if dry {
		r["dry_run"] = true
	}
	where := placeAsked(cmd, at)
	done += ", " + where
	said := "done: " + done
	switch {
	case asked:
		r["where"] = where
		return printJSON(cmd, r)
	case dry:
		said = "it would be " + said
	case r.text("result") == "pending":
		said = "pending: " + done + "; " + r.text("at")
	case r.at("changed") == false:
		said += ": it was so already"
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
	return err
}

func quarantineStatusCommand() *cobra.Command {
	return eitherWay(&cobra.Command{
		Use:   "status",
		Short: "Say what is in quarantine, since when, why, how much waits, and what to do next",
		Long: trim(`
			Say what is kept from leaving, since when, why and by whom, how long the lost time may be, how far
			workers were asked, how much waits by type, and the next step. With --database-url, or with DATABASE_URL
			and without POSTERN_URL and --url, it is read in the database itself.

			  postern quarantine status
			  postern quarantine status -o json | jq '.items[].next_step'`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			b, where, err := readQuarantine(cmd)
			if err != nil {
				return err
			}
			r, err := parse(b)
			switch {
			case err != nil:
				return err
			case asked:
				return printJSON(cmd, r)
			}
			return printQuarantine(cmd, r, where)
		},
	})
}

// readQuarantine reads what is in quarantine, and says where.
func readQuarantine(cmd *cobra.Command) (b []byte, where string, err error) {
	at, err := atDatabase(cmd)
	if err != nil {
		return nil, "", err
	}
	where = placeAsked(cmd, at)
	if at != nil {
		defer at.Close()
		b, err := at.Read(cmd.Context())
		return b, where, advised(cmd, err)
	}
	d, err := dialAlive(cmd)
	if err != nil {
		return nil, "", err
	}
	b, _, err = d.get("/quarantine")
	return b, where, advised(cmd, err)
}

// printQuarantine writes a paragraph for each scope, and the tables of what waits and what is open. where is the place
// that was asked.
func printQuarantine(cmd *cobra.Command, r record, where string) error {
	out := cmd.OutOrStdout()
	items := r.records("items")
	if len(items) == 0 {
		fmt.Fprintln(out, "nothing is in quarantine, "+where)
	}
	for _, s := range items {
		q := pg.Quarantine{Context: s.text("context"), Type: s.text("type")}
		fmt.Fprintf(out, "%s is in quarantine, %s, since %s, by %s: %s\n", q, where, s.text("entered_at"), s.text("by"),
			clean(s.text("reason")))
		if s.at("lost_from") != nil {
			from, until := s.moment("lost_from"), s.moment("lost_until")
			fmt.Fprintf(out, "  lost time: %s at most, from %s to %s\n", until.Sub(from).Round(time.Millisecond),
				s.text("lost_from"), s.text("lost_until"))
		}
		fmt.Fprintf(out, "  questions: %s; %d asked about, %d moved on, %d never seen by their worker, %d open\n",
			s.text("reconcile.state"),
			s.whole("reconcile.asked"), s.whole("reconcile.moved_on"),
			s.whole("reconcile.unknown"), s.whole("reconcile.open"))
		fmt.Fprintf(out, "  next: %s\n", s.text("next_step"))
	}
	rows := [][]string{{"context", "type", "queues", "transactions"}}
	for _, w := range r.records("waiting") {
		rows = append(rows, []string{w.text("context"), w.text("type"), w.text("queues"), w.text("transactions")})
	}
	if len(rows) > 1 {
		fmt.Fprintln(out, "\nwaiting:")
		printTable(cmd, rows)
	}
	rows = [][]string{{"id", "type", "why", "detail"}}
	for _, u := range r.records("open") {
		rows = append(rows, []string{u.text("id"), u.text("type"), u.text("why"), clean(u.text("detail"))})
	}
	if len(rows) > 1 {
		fmt.Fprintln(out, "\nopen:")
		printTable(cmd, rows)
	}
	return nil
}

func quarantineReconcileCommand() *cobra.Command {
	var anew bool
	var reason string
	cmd := eitherWay(&cobra.Command{
		Use:   "reconcile " + scopeArgs,
		Short: "Ask workers what they did in the lost time",
		Long: trim(`
			Ask the workers about every transaction that has not ended, those that wait too, by its tokens upward
			from the attempt of its row until one is unknown. What a worker did is recorded; what it never saw
			waits for the release; what it does not say is open, and listed by status. It may be broken off and
			goes on where it was; run again after its end, it asks about everything once more.

			It needs a running API, which calls the workers: start postern serve on the database first.

			  postern quarantine reconcile --url http://127.0.0.1:8080
			  postern quarantine reconcile dispatchers/PAY --anew

			Exit codes: 0 asked about everything, 1 refused, 3 API or database cannot be reached: run it again.`),
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := scopeOf(cmd, args)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("database-url") {
				return usage(cmd, errors.New("reconcile calls the workers from an API, a database alone is not enough: start `postern serve` on it, and give --url"))
			}
			return reconcile(cmd, q, anew, reason)
		},
	})
	cmd.Flags().MarkHidden("database-url") // it is refused with the reason
	cmd.Flags().BoolVar(&anew, "anew", false, "begin again, though the last round has not reached its end")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	return cmd
}

// reconcile has one part after the other asked about, and prints a line for each.
func reconcile(cmd *cobra.Command, q pg.Quarantine, anew bool, reason string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	d, err := dialAlive(cmd)
	if err != nil {
		return err
	}
	for {
		status, _, b, err := d.raw(http.MethodPost, "/quarantine/reconcile",
			scopeBody(q, map[string]any{"anew": anew, "reason": reason}))
		if err != nil {
			return advised(cmd, err)
		}
		r, err := parse(b)
		if err != nil {
			return err
		}
		if asked {
			err = printJSON(cmd, r)
		} else {
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%d asked about, %d moved on, %d never seen by their worker, %d open\n", r.whole("reconcile.asked"),
				r.whole("reconcile.moved_on"), r.whole("reconcile.unknown"), r.whole("reconcile.open"))
		}
		if anew = false; err != nil || status == http.StatusOK {
			if !asked && err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "next: "+r.text("next_step"))
			}
			return err
		}
	}
}

func quarantineReleaseCommand() *cobra.Command {
	var how pulling
	var anyway bool
	cmd := eitherWay(&cobra.Command{
		Use:   "release " + scopeArgs,
		Short: "Release a quarantine: what waits goes out",
		Long: trim(`
			Release a scope, named as it was entered. Where commits may be lost, and workers were not asked about
			everything or something is open, it is refused with numbers unless --anyway is given: what was
			executed in the lost time may then be executed again.

			  postern quarantine release --reason "asked, and nothing is open"
			  postern quarantine release --anyway --reason "a clone of yesterday for tests, with workers of its own"`),
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := scopeOf(cmd, args)
			if err != nil {
				return err
			}
			at, err := atDatabase(cmd)
			if err != nil {
				return err
			}
			if at == nil {
				return askLever(cmd, "/quarantine/release", how.dry,
					scopeBody(q, map[string]any{"reason": how.reason, "anyway": anyway}), q.String()+" is released")
			}
			defer at.Close()
			return releaseAt(cmd, at, q, how, anyway)
		},
	})
	reasonFlags(cmd, &how)
	cmd.Flags().BoolVar(&anyway, "anyway", false, "though workers were not asked, or something is open")
	return cmd
}

func releaseAt(cmd *cobra.Command, at *app.Quarantine, q pg.Quarantine, how pulling, anyway bool) error {
	ctx, end := cmd.Context(), func() {}
	if how.dry {
		ctx, end = at.DryRun(ctx)
	}
	defer end()
	at.By.Reason = how.reason
	if _, err := at.ReleaseQuarantine(ctx, at.By, q, anyway); err != nil {
		return advised(cmd, err)
	}
	return leverSaid(cmd, at, record{"result": "done", "changed": true}, how.dry, q.String()+" is released")
}

func identityAnnounceCommand() *cobra.Command {
	var how pulling
	cmd := eitherWay(&cobra.Command{
		Use:   "announce DEPLOYMENT",
		Short: "Say under which deployment this database runs from now on",
		Long: trim(`
			The first process with a POSTERN_DEPLOYMENT gives it to its database. One that has another puts
			everything into quarantine, since the database may be a copy, as in a staging clone. Where it is none,
			and the deployment was renamed, say so, and release.

			  postern identity announce shop-eu --reason "the namespace was renamed"
			  postern quarantine release --anyway --reason "renamed, nothing was lost"`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := atDatabase(cmd)
			if err != nil {
				return err
			}
			done := "this database runs as " + args[0]
			if at == nil {
				b, err := json.Marshal(map[string]string{"deployment": args[0], "reason": how.reason})
				if err != nil {
					return err
				}
				return askLever(cmd, "/identity/announce", how.dry, b, done)
			}
			defer at.Close()
			ctx, end := cmd.Context(), func() {}
			if how.dry {
				ctx, end = at.DryRun(ctx)
			}
			defer end()
			at.By.Reason = how.reason
			r, err := at.AnnounceDeployment(ctx, at.By, args[0])
			if err != nil {
				return advised(cmd, err)
			}
			return leverSaid(cmd, at, record{"result": "done", "changed": r.Changed}, how.dry, done)
		},
	})
	reasonFlags(cmd, &how)
	return cmd
}
