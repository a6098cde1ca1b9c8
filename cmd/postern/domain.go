package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func domainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "domain",
		Short: "Domains and their intents: put, rm, height, submit, intents, works, resume, cancel, release",
		Long: trim(`
			An intent is something that is to be done once. The service of its domain assembles, signs, endorses
			and prepares it over HTTP; then its public transaction goes out, and the intent has one receipt.

			  postern domain put tok '{"types": ["PAY"], "service_url": "http://127.0.0.1:9000"}'
			  postern domain submit tok '{"party": "alice", "data": {"pay": 5}}' --wait 1m
			  postern domain show tok
			  postern domain intents tok receipt=failure
			  postern domain works tok
			  postern pause domains/tok`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want ls, show, put, rm, height, submit, intents, works, resume, cancel "+
				"or release"))
		},
	}
	cmd.AddCommand(listOf("domains", "List domains"), domainShowCommand(), domainPutCommand(), domainRemoveCommand(),
		domainHeightCommand(), intentSubmitCommand(),
		domainListCommand("intents", "List the intents of a domain, the newest first"),
		domainListCommand("works", "List what this node coordinates, and for how long it is where it is"),
		intentLeverCommand("resume", "Have a parked intent go on"),
		intentLeverCommand("cancel", "End an intent that has sent nothing yet"), intentReleaseCommand())
	return cmd
}

func intentPath(domain, id, what string) string {
	return objectPath("domains/"+domain) + "/intents/" + url.PathEscape(id) + what
}

func domainShowCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "show NAME [INTENT]",
		Short: "Show a domain, or one of its intents by id or uid",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			path := objectPath("domains/" + args[0])
			if len(args) == 2 {
				path = intentPath(args[0], args[1], "")
			}
			b, _, err := d.get(path)
			if err != nil {
				return err
			}
			return printed(cmd, b)
		},
	})
}

// domainListCommand lists what a domain has of a noun. A filter is a parameter of the list in the contract.
func domainListCommand(noun, short string) *cobra.Command {
	return asClient(&cobra.Command{
		Use:   noun + " NAME [FILTER=VALUE...]",
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			query := url.Values{}
			for _, arg := range args[1:] {
				name, value, isFilter := strings.Cut(arg, "=")
				if !isFilter {
					return usage(cmd, fmt.Errorf("%q is no filter: want FILTER=VALUE, such as state=Pooled", arg))
				}
				query.Add(name, value)
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			path := objectPath("domains/" + args[0])
			return d.list(cmd, cmd.OutOrStdout(), path[1:]+"/"+noun, query, asked)
		},
	})
}

func domainPutCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "put NAME SETTINGS",
		Short: "Create a domain, or replace its settings",
		Long: trim(`
			SETTINGS is JSON, @FILE, or - for standard input: types and service_url at least.

			  postern domain put tok @tok.json`),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := content(cmd, args[1])
			if err != nil {
				return usage(cmd, err)
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			_, _, b, err := d.raw(http.MethodPut, objectPath("domains/"+args[0]), body)
			if err != nil {
				return err
			}
			return printed(cmd, b)
		},
	})
}

func domainRemoveCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a domain whose intents have all ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodDelete, objectPath("domains/"+args[0]), nil)
		},
	})
}

func domainHeightCommand() *cobra.Command {
	var force bool
	cmd := asClient(&cobra.Command{
		Use:   "height NAME HEIGHT",
		Short: "Raise the block height of a domain",
		Long: trim(`
			The height says whose turn it is to coordinate. Where the service answers /height, it is raised by itself.

			  postern domain height tok 4711`),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"height": args[1]}
			if force {
				body["force"] = true
			}
			return ask(cmd, http.MethodPut, objectPath("domains/"+args[0])+"/height", body)
		},
	})
	cmd.Flags().BoolVar(&force, "force", false, "also where it rises by more than ten ranges of blocks, or falls")
	return cmd
}

func intentSubmitCommand() *cobra.Command {
	var wait time.Duration
	cmd := asClient(&cobra.Command{
		Use:   "submit NAME INTENT",
		Short: "Have something done once",
		Long: trim(`
			INTENT is JSON, @FILE, or - for standard input: party, data, and perhaps uid and depends_on; or a list
			of those, which are stored all or none. With --wait one is followed to its receipt: exit code 0 for
			success, 1 for failure, 4 if it has none by then.

			  postern domain submit tok '{"uid": "order-7", "party": "alice", "data": {"pay": 5}}' --wait 1m`),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := content(cmd, args[1])
			if err != nil {
				return usage(cmd, err)
			}
			return submitIntents(cmd, args[0], body, wait)
		},
	})
	cmd.Flags().DurationVar(&wait, "wait", 0, "follow it to its receipt for so long")
	return cmd
}

func submitIntents(cmd *cobra.Command, domain string, body []byte, wait time.Duration) error {
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	path := objectPath("domains/"+domain) + "/intents"
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		if wait > 0 {
			return usage(cmd, errors.New("--wait follows one intent: leave it out for a list"))
		}
		path += ":batch"
		if body, err = json.Marshal(map[string]json.RawMessage{"intents": body}); err != nil {
			return usage(cmd, fmt.Errorf("INTENT: %w", err))
		}
	}
	b, i, err := d.posted(path, body)
	if err != nil {
		return err
	}
	id := i.text("id")
	for until := time.Now().Add(wait); i.text("ended_at") == "" && time.Now().Before(until); {
		time.Sleep(min(time.Until(until), 200*time.Millisecond))
		if b, i, err = d.get(intentPath(domain, id, "")); err != nil {
			return err
		}
	}
	if err := printed(cmd, b); err != nil || wait == 0 {
		return err
	}
	switch outcome := i.text("receipt.outcome"); outcome {
	case "success":
		return nil
	case "failure":
		return &failure{exitBad, "postern api GET " + intentPath(domain, id, "/history"),
			fmt.Errorf("intent %s failed: %s", id, clean(i.text("receipt.text")))}
	}
	return &failure{exitWaited, "postern api GET " + intentPath(domain, id, "/history"),
		fmt.Errorf("intent %s has not ended after %s: it is %s", id, wait, i.text("state"))}
}

// intentLeverCommand is an action on an intent.
func intentLeverCommand(verb, short string) *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   verb + " NAME INTENT",
		Short: short,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := intentPath(args[0], args[1], "/"+verb)
			return ask(cmd, http.MethodPost, path, map[string]string{"reason": reason})
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the audit row")
	return cmd
}

func intentReleaseCommand() *cobra.Command {
	var outcome, reason string
	cmd := asClient(&cobra.Command{
		Use:   "release NAME [INTENT]",
		Short: "Say what became of an intent whose transaction may have landed, or let a domain go on",
		Long: trim(`
			Without INTENT a domain goes on that waits since this store may have lost something. With --outcome
			not_done, nothing that this node posted in the time that is lost is on its way any more, and of what was
			done each intent was released as done: what clients submit under a uid in the day behind the loss waits
			for that word.

			Where it cannot be known whether the public transaction of an intent has landed, the intent waits.
			Look at the ledger, and say: done ends the intent with success; not_done has it done again, and where
			that was wrong, twice.

			  postern domain release tok order-7 --outcome done --reason "in block 4711"`),
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				body := map[string]string{"reason": reason}
				switch outcome {
				case "not_done":
					body["outcome"] = outcome
				case "":
				default:
					return usage(cmd, errors.New("--outcome done is about an INTENT: name it"))
				}
				return ask(cmd, http.MethodPost, objectPath("domains/"+args[0])+"/release", body)
			}
			if outcome == "" || reason == "" {
				return usage(cmd, errors.New("want --outcome done or not_done, and --reason"))
			}
			return ask(cmd, http.MethodPost, intentPath(args[0], args[1], "/release"),
				map[string]string{"outcome": outcome, "reason": reason})
		},
	})
	cmd.Flags().StringVar(&outcome, "outcome", "", "done or not_done")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the audit row")
	return cmd
}
