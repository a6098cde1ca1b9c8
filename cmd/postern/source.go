package main

import (
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func sourceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source",
		Short: "Say where events come from; stop, resume and rewind sources",
		Long: trim(`
			A source makes events of a log (sui_graphql, sui, http_json, devnet), of the rows of a table or view
			(postgres_table), or takes what is pushed to it (push). Its map says where in an event its tool is.

			  postern source put orders --kind push --map '{"fqn": "/tool", "input": "/input"}'
			  postern source put calls --table public.calls --key id --cursor id --map '{"fqn": "/tool"}'
			  postern source ls
			  postern source rewind calls '{"at": "7"}' --reason "rows came late"`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want ls, show, put, rm, pause, resume or rewind"))
		},
	}
	cmd.AddCommand(listOf("sources", "List sources, how far they are, and what is wrong"), sourceShowCommand(), sourcePutCommand(), sourceRemoveCommand(),
		sourceLever("pause", "Stop reading a source"), sourceLever("resume", "Go on reading, also after a failure"), sourceRewindCommand())
	return cmd
}

func sourceShowCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use: "show NAME", Short: "Show a source with its cursor, its lag, and why it stopped", Args: cobra.ExactArgs(1), ValidArgsFunction: completeNames("sources"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodGet, objectPath("sources/"+args[0]), nil)
		},
	})
}

func sourcePutCommand() *cobra.Command {
	var kind, url, where, filter, start, every, stale, undecodable string
	var page, buffer, retries int
	table := map[string]*string{"name": new(string), "key": new(string), "cursor": new(string), "payload": new(string), "settle": new(string)}
	cmd := asClient(&cobra.Command{
		Use:   "put NAME",
		Short: "Make a source, or replace its settings; its cursor stays",
		Long: trim(`
			Make the source NAME. With --table it is of kind postgres_table: rows of a table or view, of Postern's
			own database or of the one that --source-url names, are events, in the order of a column that only grows.

			  postern source put chain --kind http_json --source-url http://127.0.0.1:9000/log --map '{"fqn": "/tool"}'
			  postern source put sui --kind sui_graphql --source-url https://graphql.mainnet.sui.io/graphql \
			    --filter '{"module": "0x2::workflow"}' --map '{"fqn": "/contents/json/tool"}'
			  postern source put calls --table public.calls --key id --cursor id --payload data --settle 1s --map @map.json`),
		Args: cobra.ExactArgs(1),
	})
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "", "sui_graphql, sui, http_json, devnet, push, or postgres_table, which --table means")
	f.StringVar(&url, "source-url", "", "of what is fetched; postgres_table: of another database, without a password")
	f.StringVar(&where, "map", "", "where fqn, input, id ... are: JSON, @FILE, or - for standard input")
	f.StringVar(&filter, "filter", "", "which events, as the source has it: JSON or @FILE")
	f.StringVar(table["name"], "table", "", "a table or view, with its schema")
	f.StringVar(table["key"], "key", "", "the column that names a row")
	f.StringVar(table["cursor"], "cursor", "", "the column that only grows, by which rows are read")
	f.StringVar(table["payload"], "payload", "", "the column that is the event (the whole row)")
	f.StringVar(table["settle"], "settle", "", "a row is read once its cursor has been passed for so long (5s)")
	f.StringVar(&start, "start", "", "earliest or latest: where a new source begins (earliest)")
	f.StringVar(&every, "poll-every", "", "after a page with nothing behind it (1s)")
	f.StringVar(&stale, "stale-after", "", "a call that has not ended for so long is given up (30m)")
	f.StringVar(&undecodable, "on-undecodable", "", "halt before an event that cannot be read, or store it dead and go on (halt)")
	f.IntVar(&page, "page-size", 0, "events a page (50)")
	f.IntVar(&buffer, "buffer", 0, "events that may wait for their tools at a time (100); more are stored")
	f.IntVar(&retries, "max-retries", 0, "how often a tool is called again for one event (10)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := sourceOf(cmd, kind, map[string]string{"map": where, "filter": filter}, table)
		if err != nil {
			return usage(cmd, err)
		}
		for name, text := range map[string]string{
			"url":            url,
			"start":          start,
			"poll_every":     every,
			"stale_after":    stale,
			"on_undecodable": undecodable,
		} {
			if text != "" {
				in[name] = text
			}
		}
		for name, n := range map[string]int{"page-size": page, "buffer": buffer, "max-retries": retries} {
			if cmd.Flags().Changed(name) {
				in[strings.ReplaceAll(name, "-", "_")] = n
			}
		}
		return ask(cmd, http.MethodPut, objectPath("sources/"+args[0]), in)
	}
	return cmd
}

// sourceOf is what a source must have, of its kind, its files and its table.
func sourceOf(
	cmd *cobra.Command, kind string, files map[string]string, table map[string]*string,
) (map[string]any, error) {
	in := map[string]any{}
	for name, text := range files {
		if text == "" {
			continue
		}
		b, err := content(cmd, text)
		if err != nil {
			return nil, err
		}
		in[name] = b
	}
	of := map[string]string{}
	for name, text := range table {
		if *text != "" {
			of[name] = *text
		}
	}
	if len(of) > 0 {
		if in["table"] = of; kind == "" {
			kind = "postgres_table"
		}
	}
	switch {
	case kind == "":
		return nil, errors.New("want --kind, or --table")
	case in["map"] == nil:
		return nil, errors.New(`want --map: where in an event its tool is, such as '{"fqn": "/tool"}'`)
	}
	in["kind"] = kind
	return in, nil
}

func sourceRemoveCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use: "rm NAME", Short: "End a source; its events stay", Args: cobra.ExactArgs(1), ValidArgsFunction: completeNames("sources"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodDelete, objectPath("sources/"+args[0]), nil)
		},
	})
}

func sourceLever(verb, short string) *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: completeNames("sources"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodPost, objectPath("sources/"+args[0])+"/"+verb, map[string]string{"reason": reason})
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	return cmd
}

func sourceRewindCommand() *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "rewind NAME [CURSOR]",
		Short: "Read again from a cursor; nothing is stored twice",
		Long: trim(`
			Read the source again after CURSOR (JSON as show prints it, @FILE, or - for standard input), or without
			one from its start. Events that are stored already are passed over.

			  postern source rewind calls '{"at": "7"}'
			  postern source rewind calls --reason "the log was repaired"`),
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: completeNames("sources"),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := map[string]any{"reason": reason}
		if len(args) == 2 {
			b, err := content(cmd, args[1])
			if err != nil {
				return usage(cmd, err)
			}
			in["cursor"] = b
		}
		return ask(cmd, http.MethodPost, objectPath("sources/"+args[0])+"/rewind", in)
	}
	return cmd
}
