package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pg/doctor"
)

var braces = regexp.MustCompile(`\{[^}]*\}`)

func lsCommand() *cobra.Command {
	var watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:     "ls [NOUN] [FILTER=VALUE...]",
		Aliases: []string{"list"},
		Short:   "List transactions, queues, senders or whatever else there is",
		Long: trim(`
			List what there is of a noun; without one, transactions: those of the last 24 hours, newest
			first. A filter is a parameter of the list in the contract; one that is repeated means or.
			With -o json the page is printed as the API answers it. The noun alone is a command too:
			postern queues is postern ls queues. In a pipe each row is one line.

			  postern ls
			  postern ls state=FAILED state=UNRESOLVED limit=20
			  postern ls held=true
			  postern ls transactions queue=claim-7f3 order=asc
			  postern ls queues --watch
			  postern ls senders -o json | jq -r '.items[].account'`),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			noun, query, err := filters(cmd, args)
			if err != nil {
				return err
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			show := func(w io.Writer) error { return d.list(cmd, w, noun, query, asked) }
			if watch {
				return watching(cmd, every, show)
			}
			return show(cmd.OutOrStdout())
		},
		ValidArgsFunction: completeFilters,
	}
	asClient(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever it changed, until Ctrl-C")
	cmd.Flags().DurationVar(&every, "every", time.Second, "with --watch: how often to look")
	return cmd
}

// listedNouns are the nouns that can be listed, in the order of the alphabet.
func listedNouns() []string { return slices.Sorted(maps.Keys(nouns())) }

// aliasedNouns are the nouns that are commands of their own: those that no command has for a name.
func aliasedNouns() []string {
	return slices.DeleteFunc(listedNouns(), func(noun string) bool { return noun == "machines" })
}

// nounCommands are ls of one noun each: postern queues is postern ls queues.
func nounCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, noun := range aliasedNouns() {
		cmd := lsCommand()
		list := cmd.RunE
		cmd.Use, cmd.Aliases, cmd.Hidden = noun+" [FILTER=VALUE...]", nil, true
		cmd.Short = "List " + noun + ", as postern ls " + noun
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return list(cmd, append([]string{noun}, args...)) }
		cmd.ValidArgsFunction = func(cmd *cobra.Command,
			args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeFilters(cmd, append([]string{noun}, args...), typed)
		}
		all = append(all, cmd)
	}
	return all
}

// filters reads [NOUN] [FILTER=VALUE...].
func filters(cmd *cobra.Command, args []string) (noun string, query url.Values, err error) {
	noun, query = "transactions", url.Values{}
	for i, arg := range args {
		name, value, isFilter := strings.Cut(arg, "=")
		switch {
		case isFilter:
			query.Add(name, value)
		case i == 0:
			noun = plural(arg)
		default:
			return "", nil, usage(cmd, fmt.Errorf("%q is no filter: want FILTER=VALUE, such as state=FAILED", arg))
		}
	}
	known, ok := nouns()[noun]
	if !ok {
		return "", nil, usage(cmd, fmt.Errorf("there is no list of %q%s: want %s", noun, perhaps(noun, listedNouns()),
			strings.Join(listedNouns(), ", ")))
	}
	for name := range query {
		if !slices.Contains(known, name) {
			return "", nil, usage(cmd, fmt.Errorf("%s have no filter %q%s: want %s", noun, name, perhaps(name, known),
				strings.Join(known, ", ")))
		}
	}
	return noun, query, nil
}

// list prints one page.
func (d *door) list(cmd *cobra.Command, w io.Writer, noun string, query url.Values, asJSON bool) error {
	path := "/" + noun
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	b, page, err := d.get(path)
	if refusedAs(err, "invalid") {
		return usage(cmd, err)
	}
	if err != nil {
		return err
	}
	if asJSON {
		_, err := w.Write(append(bytes.TrimSpace(b), '\n'))
		return err
	}
	rows, p := page.records("items"), paperOf(cmd)
	if noun == "queues" {
		if err := d.standing(rows); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(w, "no %s%s\n", noun, window(page))
	} else {
		p.table(w, columnsOf(noun, rows), rows)
	}
	if next := page.text("next"); next != "" {
		words := append(append([]string{"postern", "ls", noun}, spelled(query)...), "cursor="+next)
		fmt.Fprintf(cmd.ErrOrStderr(), "more: %s\n", doctor.Shell(words...))
	}
	return nil
}

// waitsFor is the member under which a queue keeps what its head waits for, as far as its type says it.
const waitsFor = "waits_for"

// standing adds to queues what their heads wait for where that is their type: it is paused, or its worker is away.
// One request tells it for a whole page; why tells the rest.
func (d *door) standing(queues []record) error {
	if !slices.ContainsFunc(queues, func(q record) bool { return q.text("head.state") == "WAITING" }) {
		return nil
	}
	why := map[string]string{}
	err := d.each("/dispatchers", func(r record) {
		switch {
		case r.at("paused") == true:
			why[r.text("type")] = "type " + r.text("type") + " is paused"
		case r.text("gate.until") != "":
			why[r.text("type")] = "the worker of " + r.text("type") + " is away"
		}
	})
	if err != nil {
		return err
	}
	for _, q := range queues {
		if s := why[q.text("head.type")]; s != "" && q.text("head.state") == "WAITING" {
			q[waitsFor] = s
		} else if q.text("blocked_since") != "" {
			q[waitsFor] = "its last call came to nothing"
		}
	}
	return nil
}

// window says which time an empty list covers where the user named none.
func window(page record) string {
	if t := page.moment("window.received_after"); !t.IsZero() {
		return " since " + t.Format(time.RFC3339) + "; received_after=TIME looks further back"
	}
	return ""
}

// spelled writes filters as arguments.
func spelled(query url.Values) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, v := range query[name] {
			if name != "cursor" {
				words = append(words, name+"="+v)
			}
		}
	}
	return words
}

// keys are the plain fields of records: what names them first, then by the alphabet.
func keys(rows []record) []string {
	seen := map[string]bool{}
	for _, r := range rows {
		for key, v := range r {
			switch v.(type) {
			case map[string]any, []any:
			default:
				seen[key] = true
			}
		}
	}
	delete(seen, "version")
	var list []string
	for _, first := range []string{"name", "id", "type", "account", "at", "state"} {
		if seen[first] {
			list = append(list, first)
			delete(seen, first)
		}
	}
	return append(list, slices.Sorted(maps.Keys(seen))...)
}

// watching shows something until Ctrl-C: over and over in the same place on a terminal, else whenever it
// is not what it was.
func watching(cmd *cobra.Command, every time.Duration, show func(io.Writer) error) error {
	if every < 100*time.Millisecond {
		return usage(cmd, errors.New("--every: want 100ms or more"))
	}
	_, _, terminal := app.Terminal(os.Stdout)
	var last []byte
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var b bytes.Buffer
		if err := show(&b); err != nil {
			if cmd.Context().Err() != nil {
				return nil
			}
			cmd.OutOrStdout().Write(b.Bytes())
			return err
		}
		if !bytes.Equal(b.Bytes(), last) {
			if last = bytes.Clone(b.Bytes()); terminal {
				io.WriteString(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
			}
			cmd.OutOrStdout().Write(last)
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}
