package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func showCommand() *cobra.Command {
	cmd := asClient(&cobra.Command{
		Use:     "show ID|UID|NOUN/NAME",
		Aliases: []string{"get"},
		Short:   "Show one transaction with its history, or one of another noun",
		Long: trim(`
			Show one transaction, by its id or by the uid that its poster gave it, with its history; or one
			queue, sender, dispatcher or whatever else there is, with its history if it has one.

			  postern show order-4711
			  postern show queues/claim-7f3
			  postern show events/01a1ffaf-e692-7386-ae9a-38ade7ab2f12
			  postern show dispatchers/PAY -o json | jq .retry`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeObjects(""),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			path, err := d.named(objectPath(args[0]))
			if err != nil {
				return err
			}
			var b []byte
			var r record
			if path == "" {
				b, r, err = d.find(transactionName(args[0]))
			} else {
				b, r, err = d.get(path)
			}
			if err != nil {
				return err
			}
			out, p := cmd.OutOrStdout(), paperOf(cmd)
			if asked {
				_, err := out.Write(append(bytes.TrimSpace(b), '\n'))
				return err
			}
			p.record(out, r)
			if path == "" {
				path = "/transactions/" + r.text("id")
			} else if !can("GET", objectForm(path)+"/history") {
				return nil
			}
			_, history, err := d.get(path + "/history")
			if err == nil {
				fmt.Fprintln(out)
				p.table(out, layouts["history"], history.records("items"))
			}
			return err
		},
	})
	return cmd
}

// attemptsCommand lists the calls that one transaction made.
func attemptsCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "attempts ID|UID",
		Short: "List the calls to the worker that a transaction has made, and what was answered",
		Long: trim(`
			List the calls to the worker that a transaction has made, oldest first: which sender signed, what was
			answered, how long it took. An attempt is late where its answer came after another process had gone on with
			the queue; such an answer changes nothing.

			  postern attempts order-4711
			  postern attempts order-4711 -o json | jq -r '.items[].token'`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeObjects("why"),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			if path := objectPath(args[0]); path != "" {
				return usage(cmd,
					fmt.Errorf("%s is no transaction: want its id, or the uid that its poster gave it", args[0]))
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			var b []byte
			var page record
			err = d.about(args[0], func(path string) (err error) {
				b, page, err = d.get(path + "/attempts")
				return err
			})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asked {
				_, err := out.Write(append(bytes.TrimSpace(b), '\n'))
				return err
			}
			rows := page.records("items")
			if len(rows) == 0 {
				fmt.Fprintf(out, "no attempts: it was not sent yet; postern why %s says what it waits for\n", args[0])
				return nil
			}
			paperOf(cmd).table(out, layouts["attempts"], rows)
			return nil
		},
	})
}

// objectPath is the path of NOUN/NAME, "" for the id or uid of a transaction.
func objectPath(object string) string {
	noun, name, ok := strings.Cut(strings.TrimPrefix(object, "/"), "/")
	if !ok || plural(noun) == "transactions" {
		return ""
	}
	return "/" + plural(noun) + "/" + strings.ReplaceAll(url.PathEscape(name), "%2F", "/") // processors/main/batches/7
}

// objectForm is the path of an object as the contract has it, without names: /processors/{}/batches/{}.
func objectForm(path string) string {
	parts := strings.Split(path, "/")
	for i := 2; i < len(parts); i += 2 {
		parts[i] = "{}"
	}
	return strings.Join(parts, "/")
}

// transactionName is the id or uid in ID, UID or transactions/ID, which is how the API writes it.
func transactionName(object string) string {
	return strings.TrimPrefix(strings.TrimPrefix(object, "/"), "transactions/")
}

// record writes an object: a line per field, what is null left out, what names it first.
func (p paper) record(out io.Writer, r record) {
	names := keys([]record{r})
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if !slices.Contains(names, name) && name != "version" {
			names = append(names, name)
		}
	}
	width := 0
	for _, name := range names {
		width = max(width, len(name)+2)
	}
	for _, name := range names {
		if s := r.flat(name); s != "" && s != "{}" && s != "[]" {
			p.indented(out, name, width, s)
		}
	}
}

// clock is the time at a path as the day and second.
func clock(path string) func(record) string {
	return func(r record) string {
		t := r.moment(path)
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("01-02 15:04:05.000")
	}
}

// whyCommand prints the chain of blockers.
func whyCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "why ID|UID|NOUN/NAME",
		Short: "Say what something waits for, since when, and which lever moves it",
		Long: trim(`
			Say what a transaction, or the head of a queue, waits for: the chain of blockers from it to the
			root, since when each stands, what happens next by itself, and the levers that change it.

			  postern why order-4711
			  postern why queues/claim-7f3
			  postern why processors/main/batches/7
			  postern why sources/log
			  postern why order-4711 -o json | jq -r .summary`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeObjects("why"),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			var b []byte
			var why record
			err = d.about(args[0], func(path string) (err error) {
				b, why, err = d.get(path + "/why")
				return err
			})
			if err != nil {
				return err
			}
			if asked {
				_, err := cmd.OutOrStdout().Write(append(bytes.TrimSpace(b), '\n'))
				return err
			}
			context, _ := cmd.Flags().GetString("context") // the environment names it to the lever, too
			printWhy(cmd.OutOrStdout(), paperOf(cmd), why, context, time.Now())
			return nil
		},
	})
}

// printWhy prints the chain of blockers; context is the tenant that the levers have to name, "" for none. What the
// summary quotes of a blocker is not said again.
func printWhy(out io.Writer, p paper, why record, context string, now time.Time) {
	summary := why.text("summary")
	p.indented(out, "", 0, summary)
	placeholder := false
	for i, b := range why.records("blockers") {
		fmt.Fprintln(out)
		p.indented(out, fmt.Sprintf("%d.", i+1), 3, fmt.Sprintf("%s: %s, for %s", b.text("kind"),
			strings.TrimPrefix(b.text("object"), "/"), strings.TrimPrefix(ago(b.moment("since"), now), "in ")))
		if s := b.text("detail"); s != "" && !strings.Contains(summary, s) {
			p.indented(out, "", 3, s)
		}
		if s := b.text("help"); s != "" {
			p.indented(out, "   help", 9, s)
		}
		if b.at("lane") != nil {
			lane := b.text("lane.kind") + " " + b.text("lane.name") + ", " + b.text("lane.ahead") + " ahead"
			if s := b.text("lane.gate_reason"); s != "" {
				lane += ", none goes out now"
				if !strings.Contains(summary, s) {
					lane += ": " + s
				}
			}
			p.indented(out, "   turn", 9, lane)
		}
		if b.at("next") != nil {
			p.indented(out, "   next", 9, ago(b.moment("next.at"), now)+": "+b.text("next.what"))
		}
		for _, l := range b.records("levers") {
			// The lever stays whole, so that a shell takes it as it is copied.
			line := leverCommand(l, context)
			paper{}.indented(out, "   lever", 9, line)
			placeholder = placeholder || strings.Contains(line, "//WORKER")
		}
	}
	if placeholder {
		fmt.Fprintln(out)
		p.indented(out, "", 0, "http://WORKER stands for the address of your worker: put it there")
	}
}
