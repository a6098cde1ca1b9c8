package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/verifyworker"
)

func verifyWorkerCommand() *cobra.Command {
	var data, secret string
	o := verifyworker.Options{}
	cmd := &cobra.Command{
		Use:   "verify-worker URL",
		Short: "Check a worker, in whatever language, against the contract",
		Long: trim(`
			Call a worker as Postern would, and as a caller should not, and report how it keeps the contract: each
			check is ok, failed or not offered, names its paragraph of docs/worker-contract.md, and what failed
			comes with what it would cost in production.

			It executes: each run sends about a hundred transactions of the type, all with the same data,
			under ids that no run before has used. Give it a worker of a test environment. For instance:

			  postern verify-worker http://127.0.0.1:9000 --type PAY --data '{"to": "ada", "cents": 1}'

			Exit codes: 0 nothing failed, 1 something failed, 3 nothing listens at the URL.`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			o.URL, o.Data = args[0], json.RawMessage(data)
			if o.Secret, err = readSecret(secret); err != nil {
				return usage(cmd, err)
			}
			r, err := verifyworker.Run(cmd.Context(), o)
			switch {
			case fault.KindOf(err) == fault.Invalid:
				return usage(cmd, err)
			case err != nil:
				return err
			case asked:
				err = printJSON(cmd, r)
			default:
				printReport(cmd, r, "docs/worker-contract.md")
			}
			if err == nil && !r.OK {
				err = fmt.Errorf("%d of %d checks failed", r.Failed, len(r.Checks))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Type, "type", "VERIFY", "type of the transactions: one that the worker takes")
	f.StringVar(&data, "data", "{}", "their data, as JSON: what the worker accepts")
	f.StringVar(&o.Account, "account", "", "account of their sender (none)")
	f.StringVar(&secret, "secret-file", "", "file with the secret of the dispatcher (whsec_...), if it has one")
	f.DurationVar(&o.Timeout, "timeout", 0, "of a call (30s)")
	f.DurationVar(&o.Wait, "wait", 0, "for inclusion, and for a worker that is blocked (10s)")
	return cmd
}

// readSecret reads a secret from its file, nil without one.
func readSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the secret cannot be read: %w", err)
	}
	key, err := remote.ParseSecret(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// printReport writes the report for people: one line a check, then what the failures would cost.
func printReport(cmd *cobra.Command, r verifyworker.Report, page string) {
	rows := [][]string{{"check", "contract", "state", "found"}}
	for _, c := range r.Checks {
		rows = append(rows, []string{c.Name, c.Paragraph, string(c.State), c.Found})
	}
	printTable(cmd, rows)
	for _, c := range r.Checks {
		if c.State == verifyworker.Failed {
			fmt.Fprintf(cmd.OutOrStdout(), "\n%s: %s\n  In production: %s\n", c.Name, c.Found, c.Cost)
			fmt.Fprintf(cmd.OutOrStdout(), "  The contract: %s, paragraph %s\n", page, c.Paragraph)
		}
	}
}
