package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
)

func contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Make, list and delete contexts (tenants), and say who is in them",
		Long: trim(`
			A context is a tenant: queues, senders, types, transactions, keys and subscriptions of one are not
			there for those who have no role in it. The contexts system (whose admins are admins everywhere) and
			default always exist. To stop one and let it go on: postern pause contexts/shop, postern resume.

			  postern context create shop --require-key
			  postern context member shop 0193... executor
			  postern context ls`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want create, ls, member or delete"))
		},
	}
	cmd.AddCommand(contextCreateCommand(),
		listOf("contexts", "List the contexts in which one has a role"), contextMemberCommand(),
		removal("delete NAME...", "contexts", "deleted", "Delete empty contexts", `
			Delete contexts that hold nothing any more: neither types, senders, configured queues nor transactions.

			  postern context delete shop`))
	return cmd
}

func contextCreateCommand() *cobra.Command {
	var require, declared bool
	var depth int64
	cmd := asClient(&cobra.Command{
		Use:   "create NAME",
		Short: "Make a context",
		Long: trim(`
			Make a context; one that exists is refused. Its settings are changed with postern api PATCH.

			  postern context create shop --require-key --max-depth 1000`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := client.ContextSettings{RequireKey: &require, DeclaredQueues: &declared}
			if depth != 0 {
				in.MaxDepth = &depth
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			_, _, b, err := d.send(http.MethodPut, objectPath("contexts/"+args[0]), in, "If-None-Match", "*")
			if refusedAs(err, "precondition_failed") {
				next := "`postern show contexts/" + args[0] + "` shows it; `postern api PATCH` changes it"
				return &failure{exitBad, next, fmt.Errorf("context %s exists already", args[0])}
			}
			if err != nil {
				return err
			}
			return printed(cmd, b)
		},
	})
	cmd.Flags().BoolVar(&require, "require-key", false, "refuse transactions without an idempotency key")
	cmd.Flags().BoolVar(&declared, "declared-queues", false, "refuse transactions for queues without a configuration")
	cmd.Flags().Int64Var(&depth, "max-depth", 0, "of each queue, unless it has its own [10000]")
	return cmd
}

func contextMemberCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "member NAME ACTOR [ROLE...]",
		Short: "Give an actor exactly these roles in a context, or none",
		Long: trim(`
			Give an actor exactly these roles in a context: reader, executor, admin. Without a role it leaves; the
			last admin cannot.

			  postern context member shop 0193... executor
			  postern context member shop 0193...`),
		Args: cobra.RangeArgs(2, 5),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			path := objectPath("contexts/"+args[0]) + "/members/" + url.PathEscape(args[1])
			if len(args) == 2 {
				if _, _, _, err := d.raw(http.MethodDelete, path, nil); err != nil {
					return err
				}
				return removed(cmd, "contexts/"+args[0]+"/members/"+args[1], "removed")
			}
			_, _, b, err := d.send(http.MethodPut, path, map[string][]string{"roles": args[2:]})
			if err != nil {
				return err
			}
			return printed(cmd, b)
		},
	})
}

// send is raw with a body, and headers as pairs.
func (d *door) send(method, path string, in any,
	header ...string) (status int, _ http.Header, answer []byte, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return 0, nil, nil, err
	}
	return d.raw(method, path, b, header...)
}

// printed shows one object that the API answered.
func printed(cmd *cobra.Command, b []byte) error {
	asked, err := asJSON(cmd)
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
	paperOf(cmd).record(cmd.OutOrStdout(), r)
	return nil
}

// listOf is ls of one noun.
func listOf(noun, short string) *cobra.Command {
	return asClient(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			return d.list(cmd, cmd.OutOrStdout(), noun, url.Values{}, asked)
		},
	})
}

// removal is DELETE of each thing that is named; done is said of it then.
func removal(use, noun, done, short, long string) *cobra.Command {
	return asClient(&cobra.Command{
		Use: use, Short: short, Long: trim(long), Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(noun),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			for _, name := range args {
				path, err := d.named(objectPath(noun + "/" + name))
				if err != nil {
					return err
				}
				if _, _, _, err := d.raw(http.MethodDelete, path, nil); err != nil {
					return err
				}
				if err := removed(cmd, noun+"/"+name, done); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// removed says that something is no more.
func removed(cmd *cobra.Command, object, done string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	if asked {
		return printJSON(cmd, record{"object": object, "result": "done"})
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), object+"  "+done)
	return err
}
