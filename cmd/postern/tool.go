package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func toolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tool",
		Short: "Register tools, see whether they are ready, try them",
		Long: trim(`
			A tool is an HTTP service that events call: GET /meta says what it takes and answers, GET /health
			whether it is ready, POST /invoke does it. Its name has a domain, a name and a version.

			  postern tool put xyz.acme.math.add@1 http://127.0.0.1:9201
			  postern tool ls
			  postern tool invoke xyz.acme.math.add@1 '{"a": 1, "b": 2}'
			  postern tool rm xyz.acme.math.add@1 --reason "replaced by @2"`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want ls, show, put, rm, check, refresh or invoke"))
		},
	}
	cmd.AddCommand(listOf("tools", "List tools, and whether they are ready"), toolShowCommand(), toolPutCommand(), toolRemoveCommand(),
		toolAction("check", "Ask a tool whether it is ready"), toolAction("refresh", "Read again what a tool says of itself"), toolInvokeCommand())
	return cmd
}

func askTool(cmd *cobra.Command, method, fqn, what string, in any) error {
	return ask(cmd, method, objectPath("tools/"+fqn)+what, in)
}

// ask sends one request about an object, nil for no body, and shows what is answered.
func ask(cmd *cobra.Command, method, path string, in any) error {
	b, err := answered(cmd, method, path, in)
	if err != nil || len(b) == 0 {
		return err
	}
	return printed(cmd, b)
}

// answered sends one request, nil for no body, and returns what is answered.
func answered(cmd *cobra.Command, method, path string, in any) ([]byte, error) {
	d, err := dial(cmd)
	if err != nil {
		return nil, err
	}
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	_, _, b, err := d.raw(method, path, body)
	return b, err
}

// asQuery is a reason as a query, "" for none.
func asQuery(reason string) string {
	if reason == "" {
		return ""
	}
	return "?" + url.Values{"reason": {reason}}.Encode()
}

func toolShowCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use: "show FQN", Short: "Show a tool with its schemas, its health, and why it could not be read again", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeNames("tools"),
		RunE:              func(cmd *cobra.Command, args []string) error { return askTool(cmd, http.MethodGet, args[0], "", nil) },
	})
}

func toolPutCommand() *cobra.Command {
	var timeout, ttl, every, sign, definition, reason string
	cmd := asClient(&cobra.Command{
		Use:   "put FQN URL",
		Short: "Register a tool, or replace what it is registered with",
		Long: trim(`
			Register the tool at URL under its name FQN: domain.name@version. What it takes and answers it says
			itself (GET URL/meta), now and again after the TTL; or --definition does, with input_schema and
			output_schema. One that is broken is refused, with the JSON pointer of what is wrong.

			  postern tool put xyz.acme.math.add@1 http://127.0.0.1:9201 --timeout 10s
			  postern tool put xyz.acme.math.add@1 http://127.0.0.1:9201 --definition @add.json`),
		Args: cobra.ExactArgs(2),
	})
	f := cmd.Flags()
	f.StringVar(&timeout, "timeout", "", "of a call (30s, or what /meta says)")
	f.StringVar(&ttl, "ttl", "", "for so long is believed what /meta said (5m)")
	f.StringVar(&every, "check-every", "", "how often /health is asked (30s; 0s: never)")
	f.StringVar(&sign, "sign", "", "how calls are signed: ed25519 (not at all, or what /meta says)")
	f.StringVar(&definition, "definition", "", "input_schema, output_schema, description: JSON, @FILE, or - for standard input")
	f.StringVar(&reason, "reason", "", "why; kept with who and when")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := map[string]any{}
		if definition != "" {
			b, err := content(cmd, definition)
			if err != nil {
				return usage(cmd, err)
			}
			var members map[string]json.RawMessage
			if json.Unmarshal(b, &members) != nil {
				return usage(cmd, errors.New("--definition: want a JSON object with input_schema and output_schema"))
			}
			for _, name := range []string{"description", "input_schema", "output_schema"} {
				if members[name] != nil {
					in[name] = members[name]
				}
			}
		}
		for name, value := range map[string]string{"url": args[1], "timeout": timeout, "ttl": ttl, "check_every": every, "sign": sign} {
			if value != "" {
				in[name] = value
			}
		}
		return askTool(cmd, http.MethodPut, args[0], asQuery(reason), in)
	}
	return cmd
}

func toolRemoveCommand() *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use: "rm FQN", Short: "Take a tool out of the registry: events that name it are refused then", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeNames("tools"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askTool(cmd, http.MethodDelete, args[0], asQuery(reason), nil)
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	return cmd
}

func toolAction(verb, short string) *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use: verb + " FQN", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: completeNames("tools"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askTool(cmd, http.MethodPost, args[0], "/"+verb+asQuery(reason), nil)
		},
	})
	if verb == "refresh" {
		cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	}
	return cmd
}

func toolInvokeCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "invoke FQN INPUT",
		Short: "Try a tool once, and record nothing",
		Long: trim(`
			Call the tool with INPUT (JSON, @FILE, or - for standard input) as an event would: the input is held
			against its input schema, the answer against its output schema.

			  postern tool invoke xyz.acme.math.add@1 '{"a": 1, "b": 2}'

			Exit codes: 0 it answered a variant, 1 it failed, or input or output does not fit.`),
		Args: cobra.ExactArgs(2), ValidArgsFunction: completeNames("tools"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := content(cmd, args[1])
			if err != nil {
				return usage(cmd, err)
			}
			return askTool(cmd, http.MethodPost, args[0], "/invoke", map[string]any{"input": b})
		},
	})
}
