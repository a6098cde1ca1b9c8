package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/verifyworker"
)

func verifyDomainCommand() *cobra.Command {
	var data string
	o := verifyworker.DomainOptions{}
	cmd := &cobra.Command{
		Use:   "verify-domain URL",
		Short: "Check the service of a domain, in whatever language",
		Long: trim(`
			Call the service of a domain as Postern would, and report how it keeps its contract: each check is ok,
			failed or not offered, and what failed comes with what it would cost in production.

			It is asked to assemble, sign, endorse and prepare one intent. Nothing of that has effects outside, if
			the service keeps its contract. For instance:

			  postern verify-domain http://127.0.0.1:9000 --data '{"text": "hello"}'

			Exit codes: 0 nothing failed, 1 something failed, 3 nothing listens at the URL.`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			o.URL, o.Data = args[0], json.RawMessage(data)
			r, err := verifyworker.RunDomain(cmd.Context(), o)
			switch {
			case fault.KindOf(err) == fault.Invalid:
				return usage(cmd, err)
			case err != nil:
				return err
			case asked:
				err = printJSON(cmd, r)
			default:
				printReport(cmd, r, "docs/domain.md")
			}
			if err == nil && !r.OK {
				err = fmt.Errorf("%d of %d checks failed", r.Failed, len(r.Checks))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&data, "data", "{}", "data of an intent that does well, as JSON")
	f.StringVar(&o.Party, "party", "someone@self", "whose intent it is: name@node")
	f.StringSliceVar(&o.Nodes, "nodes", nil, "nodes of the domain (that of the party)")
	f.StringSliceVar(&o.Types, "types", nil, "types of public transactions that it may prepare (any)")
	f.StringSliceVar(&o.Calls, "calls", nil, "what it answers besides: look, settled, height")
	f.DurationVar(&o.Timeout, "timeout", 0, "of a call (10s)")
	return cmd
}
