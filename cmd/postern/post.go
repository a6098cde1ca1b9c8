package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/app"
)

// posting are the flags of post.
type posting struct {
	queue, data, uid, sender, notBefore, before, after string

	first   bool
	tags    []string
	retries int64
	wait    time.Duration
}

func postCommand() *cobra.Command {
	var p posting
	cmd := &cobra.Command{
		Use:     "post TYPE",
		Aliases: []string{"submit"},
		Short:   "Post a transaction, and follow it to its end if asked",
		Long: trim(`
			Post a transaction of a type. A transaction that was answered is committed. If no answer came, post it
			again with the same --uid: that makes no second one. With --wait it is followed to its end: exit code 0
			if it ends DONE, 1 if it ends otherwise, 4 if it has not ended by then.

			  postern post PAY --queue ada --data '{"cents": 100}'
			  postern post PAY --queue ada --data @payment.json --uid order-4711 --wait 60s
			  jq .payment order.json | postern post PAY --queue ada --data -
			  postern post REPORT --not-before 2h --tag team=blue`),
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(cmd, "dispatchers"), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	p.flags(cmd)
	return cmd
}

// flags adds the flags to the command.
func (p *posting) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.queue, "queue", "q", "", "what it stays in order with (none: it waits for no other)")
	f.StringVarP(&p.data, "data", "d", "", "what the worker gets: JSON, @FILE, or - for standard input")
	f.StringVar(&p.uid, "uid", "", "your name for it; the same again is the same transaction")
	f.BoolVar(&p.first, "first", false, "before all that wait in its queue (admins)")
	f.StringVar(&p.before, "before", "", "id or uid of what it is to go out before (admins)")
	f.StringVar(&p.after, "after", "", "id or uid of what it is to go out right after (admins)")
	f.DurationVar(&p.wait, "wait", 0, "follow it to its end for so long")
	f.StringVar(&p.notBefore, "not-before", "", "a time (RFC 3339), or how long from now: 2h")
	f.Int64Var(&p.retries, "max-retries", 0, "else what the dispatcher says")
	f.StringArrayVar(&p.tags, "tag", nil, "K=V, may be repeated")
	f.StringVar(&p.sender, "sender", "", "only this account may sign it")
	asClient(cmd)
	cmd.RegisterFlagCompletionFunc("queue", completeNames("queues"))
	cmd.RegisterFlagCompletionFunc("sender", completeNames("senders"))
}

// run posts what the flags say, and follows it for --wait.
func (p *posting) run(cmd *cobra.Command, typ string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	in, err := p.transaction(cmd, typ)
	if err != nil {
		return usage(cmd, err)
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	if in.Place, err = d.placeOf(cmd, p.first, p.before, p.after); err != nil {
		return err
	}
	return d.post(cmd, in, p.uid, p.wait, asked)
}

// transaction is what the flags say, but for its place.
func (p *posting) transaction(cmd *cobra.Command, typ string) (in *client.TransactionInput, err error) {
	in = &client.TransactionInput{Type: typ}
	if p.queue != "" {
		in.Queue = &p.queue
	}
	if p.sender != "" {
		in.Sender = &p.sender
	}
	if cmd.Flags().Changed("max-retries") {
		in.MaxRetries = &p.retries
	}
	if in.NotBefore, err = whenOf(p.notBefore, time.Now()); err != nil {
		return nil, err
	}
	if in.Tags, err = tagsOf(p.tags); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("data") {
		if in.Data, err = content(cmd, p.data); err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
	}
	return in, nil
}

// placeOf is where in its queue something is to be put, nil for its end.
func (d *door) placeOf(cmd *cobra.Command, first bool, before, after string) (json.RawMessage, error) {
	named := map[string]string{"before": before, "after": after}
	place, n := any("head"), 0
	if first {
		n++
	}
	for side, name := range named {
		if name == "" {
			continue
		}
		_, r, err := d.find(transactionName(name))
		if err != nil {
			return nil, err
		}
		place, n = map[string]string{side: r.text("id")}, n+1
	}
	switch n {
	case 0:
		return nil, nil
	case 1:
		return json.Marshal(place)
	}
	return nil, usage(cmd, errors.New("want one of --first, --before and --after"))
}

// longest is how long one request may wait.
const longest = 60 * time.Second

// post posts, and follows the transaction for wait.
func (d *door) post(cmd *cobra.Command, in *client.TransactionInput, uid string,
	wait time.Duration, asJSON bool) error {
	end := time.Now().Add(wait)
	params := &client.PostTransactionParams{IdempotencyKey: uid}
	show := progressOf(cmd)
	if wait > 0 {
		params.Wait = min(wait, show.every()).String()
	}
	a, err := d.PostTransaction(d.ctx, params, in)
	if err != nil {
		var refused *client.Problem
		if !errors.As(err, &refused) && uid == "" && !unsent(err) {
			err = &failure{exitUnreachable,
				"look for it with `postern ls`; with --uid it could be posted again without harm",
				fmt.Errorf("no answer came, it may have been posted: %w", err)}
		}
		return err
	}
	t := a.Body
	for wait > 0 && !ended(t.State) && time.Until(end) > 0 {
		show.say(d, t)
		params := &client.GetTransactionParams{
			Wait: max(min(time.Until(end), show.every()), time.Second).Round(time.Second).String(),
		}
		again, err := d.GetTransaction(d.ctx, t.ID, params)
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("stopped; transaction %s goes on", t.ID)
		}
		if err != nil {
			return err
		}
		if t = again.Body; !ended(t.State) && again.Header.Get("Preference-Applied") == "" { // all its waits are taken
			select {
			case <-d.ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	if err := printPosted(cmd, t, a.Header.Get("Idempotent-Replay") != "", asJSON); err != nil {
		return err
	}
	switch {
	case wait == 0 || t.State == client.TransactionViewStateDONE:
		return nil
	case ended(t.State):
		return &failure{exitBad, "postern show " + t.ID,
			fmt.Errorf("transaction %s ended %s%s", t.ID, t.State, because(t.Error))}
	}
	return &failure{exitWaited, "postern why " + t.ID,
		fmt.Errorf("transaction %s has not ended after %s: it is %s", t.ID, wait, t.State)}
}

// progress tells a person at a terminal what a transaction that is followed waits for. Nil tells nothing.
type progress struct {
	out  io.Writer
	said map[client.TransactionViewState]bool
}

// progressOf is that of a command, nil where no terminal shows its errors.
func progressOf(cmd *cobra.Command) *progress {
	_, _, terminal := app.Terminal(os.Stderr)
	if !terminal || cmd.ErrOrStderr() != io.Writer(os.Stderr) {
		return nil
	}
	return &progress{cmd.ErrOrStderr(), map[client.TransactionViewState]bool{}}
}

// every is how long one request waits: for a person not so long that nothing is told.
func (p *progress) every() time.Duration {
	if p == nil {
		return longest
	}
	return 2 * time.Second
}

// say tells, once for each state, what the transaction waits for.
func (p *progress) say(d *door, t client.TransactionView) {
	if p == nil || p.said[t.State] {
		return
	}
	_, why, err := d.get("/transactions/" + t.ID + "/why")
	if err != nil {
		return
	}
	p.said[t.State] = true
	fmt.Fprintf(p.out, "%s is %s: %s\n", t.ID, t.State, why.text("summary"))
}

func printPosted(cmd *cobra.Command, t client.TransactionView, replay, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, t)
	}
	known := ""
	if replay {
		known = " (known already)"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s%s\n", t.ID, paperOf(cmd).paint(string(t.State)), known)
	return nil
}

func ended(s client.TransactionViewState) bool {
	switch s {
	case client.TransactionViewStateDONE, client.TransactionViewStateFAILED, client.TransactionViewStateUNRESOLVED,
		client.TransactionViewStateCANCELLED:
		return true
	}
	return false
}

func because(e *client.ErrorView) string {
	if e == nil {
		return ""
	}
	return ": " + clean(strings.TrimSpace(e.Code+" "+e.Message))
}

// content is what an argument says: JSON as it stands, @FILE, or - for standard input.
func content(cmd *cobra.Command, arg string) (json.RawMessage, error) {
	b, err := []byte(arg), error(nil)
	switch {
	case arg == "-":
		b, err = io.ReadAll(cmd.InOrStdin())
	case strings.HasPrefix(arg, "@"):
		b, err = os.ReadFile(arg[1:])
	}
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("this is no JSON: %s", clip(clean(string(b)), 64))
	}
	return b, nil
}

// whenOf reads a time, or a duration from now; nil for nothing.
func whenOf(s string, now time.Time) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		now = now.Add(d).UTC().Truncate(time.Millisecond)
		return &now, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil,
			fmt.Errorf("--not-before %q: want a time such as 2026-11-20T14:04:10Z, or how long from now, such as 2h", s)
	}
	return &t, nil
}

func tagsOf(list []string) (map[string]string, error) {
	var tags map[string]string
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--tag %q: want K=V", kv)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[k] = v
	}
	return tags, nil
}
