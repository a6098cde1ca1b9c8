package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
)

// verbs are the levers that the contract has for one object of a noun: those of POST /noun/{}/verb.
func verbs(noun string) []string {
	var list []string
	for _, op := range client.Operations {
		if rest, ok := strings.CutPrefix(braces.ReplaceAllString(op.Path, "{}"),
			"/"+noun+"/{}/"); ok && op.Method == "POST" {
			list = append(list, rest)
		}
	}
	return list
}

// levers are the commands that pull one lever on each thing they are given.
var levers = []struct {
	verb, use, short, long string
	args                   func(*cobra.Command)
}{
	{"retry", "ID|UID...", "End the delay of a transaction now", `
		Let transactions go out again without waiting for the end of their delay: those in RETRY, and
		those in WAITING whose call came to nothing (postern why ID says queue_blocked), also where an
		answer asked for hours.

		  postern retry order-4711
		  postern retry state=WAITING type=PAY --max 1000 --reason "the gateway is back"`, nil},
	{"cancel", "ID|UID...", "Take back what has not gone out", `
		Cancel transactions. What waits ends CANCELLED at once; what is in RETRY once its worker was asked
		about earlier attempts (pending), DONE if one of them got in; what is out cannot be called back.

		  postern cancel order-4711 --reason "ordered twice"`, nil},
	{"redrive", "ID|UID...", "Post what ended badly once more", `
		Post FAILED, UNRESOLVED or CANCELLED transactions again: new ones at the end of their queues, which
		name what they redrive. What was redriven already is refused, and its successor named. Events that
		are Dead are redriven likewise.

		  postern redrive order-4711
		  postern redrive events/01a1ffaf-e692-7386-ae9a-38ade7ab2f12`, nil},
	{"abandon", "ID|UID...", "End what an outage made immovable", `
		End transactions that are out, or whose cancel stays pending, as UNRESOLVED at once, whatever the
		worker may still do; a late answer is only recorded, and the sender is blocked until somebody
		unblocks it. It wants a reason.

		  postern abandon order-4711 --reason "the chain is gone"`,
		func(cmd *cobra.Command) { cmd.MarkFlagRequired("reason") }},
	{"was-done", "ID|UID...", "Say of what is held that it was done", `
		End transactions DONE that are held: their worker was called, its outcome is unknown, and it
		cannot be asked (postern why ID says why). Somebody has looked, and it was done. It wants a reason.

		  postern was-done order-4711 --reason "the bank shows the payment"`,
		func(cmd *cobra.Command) { cmd.MarkFlagRequired("reason") }},
	{"was-not-done", "ID|UID...", "Say of what is held that it was not done", `
		Let transactions go out again that are held: their worker was called, its outcome is unknown,
		and it cannot be asked (postern why ID says why). Somebody has looked, and nothing was done: the same
		token is sent again, to the same sender. It wants a reason.

		  postern was-not-done order-4711 --reason "the bank shows no payment"
		  postern was-not-done held=true type=PAY --max 1000 --reason "the bank was down"`,
		func(cmd *cobra.Command) { cmd.MarkFlagRequired("reason") }},
	{"suspend", "ID|UID...", "Keep a transaction from going out", `
		Suspend transactions: what waits keeps its place, is not sent, and what stands behind it in its queue
		waits too. What is out goes on, and is held before it would be sent again (pending).

		  postern suspend order-4711 --reason "the customer called"`, nil},
	{"move", "ID|UID...", "Let a waiting transaction go out earlier or later, or in another queue", `
		Move waiting transactions within their queue: before or after another one, or first of all that wait.
		Several keep the order in which they are named. Their positions, which tell the order of arrival, stay.
		With --queue to another queue, to its end unless a place is named: they get new ids there, to which
		the old ones lead.

		  postern move order-4711 --first --reason "the customer waits"
		  postern move order-4711 order-4712 --before order-4700
		  postern move order-4711 --queue claim-8`,
		func(cmd *cobra.Command) {
			cmd.Flags().String("queue", "", "to this queue")
			cmd.RegisterFlagCompletionFunc("queue", completeNames("queues"))
			cmd.Flags().Bool("first", false, "before all that wait")
			cmd.Flags().String("before", "", "id or uid of a transaction of that queue")
			cmd.Flags().String("after", "", "id or uid of a transaction of that queue")
		}},
	{"pause", "NOUN/NAME...", "Stop a queue, sender, pool, dispatcher or context after what is in flight", `
		Pause queues, senders, pools, dispatchers or contexts: what is in flight finishes, posts are accepted,
		nothing more goes out.

		  postern pause queues/claim-7f3 --reason "the bank is closed"
		  postern pause dispatchers/PAY`, nil},
	{"drain", "NOUN/NAME...", "Let a queue, type, context or sender accept nothing more and work off the rest", `
		Refuse posts to queues, of types, in contexts or that name a sender until they are resumed; what they
		hold goes out. A sender takes only what names it meanwhile, and leaves the rest to others. A node
		that is drained claims nothing more, and hands back what it holds as its calls end.

		  postern drain queues/claim-7f3
		  postern drain senders/acct-1 --reason "its key is changed"
		  postern drain nodes/worker-7 --reason "its machine is replaced"
		  postern drain dispatchers/PAY --reason "the last week of this type"`, nil},
	{"purge", "NOUN/NAME...", "Cancel what waits in a queue, of a type, for a sender or in a context", `
		Cancel what waits, oldest first; what is in flight goes on, and so do posts. Of a sender it is what
		only that account may sign.

		  postern purge queues/claim-7f3 --dry-run
		  postern purge queues/claim-7f3 --max 100 --reason "posted twice"`,
		func(cmd *cobra.Command) { cmd.Flags().Int("max", bulkMost, "no more than these") }},
	{"bury", "nodes/NAME...", "Take a process for dead now", `
		Let others go on with the queues of a process that is known to be gone, before its heartbeat is old
		enough. One that is alive all the same goes on; the answers to the calls that it has out are late.

		  postern bury nodes/worker-7 --reason "the machine is off"`, nil},
	{"block", "senders/ACCOUNT...", "Keep a sender from further transactions for a while", `
		Block senders for a time, or until somebody unblocks them: as by pause, what is in flight finishes, and
		its queue goes on with another sender.

		  postern block senders/acct-1 --for 1h --reason "nonce gap"`,
		func(cmd *cobra.Command) {
			cmd.Flags().String("for", "", "how long, as in 90s or 24h; without it until unblocked")
		}},
	{"unblock", "senders/ACCOUNT...", "Let a blocked sender work again", `
		End the block of senders.

		  postern unblock senders/acct-1`, nil},
	{"resume", "ID|UID|NOUN/NAME...", "Let go on what was suspended, paused or drained", `
		End the suspension of a transaction, a pause, or a drain.

		  postern resume order-4711
		  postern resume queues/claim-7f3`, nil},
}

func leverCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, l := range levers {
		var how pulling
		cmd := &cobra.Command{
			Use: l.verb + " " + l.use, Short: l.short, Long: trim(l.long), Args: cobra.MinimumNArgs(1),
			ValidArgsFunction: completeObjects(l.verb),
			RunE: func(cmd *cobra.Command, args []string) error {
				asked, err := asJSON(cmd)
				if err != nil {
					return err
				}
				d, err := dial(cmd)
				if err != nil {
					return err
				}
				if how.extra, err = d.extra(cmd); err != nil {
					return err
				}
				if strings.Contains(args[0], "=") {
					return d.pullMany(cmd, l.verb, args, how, asked)
				}
				return d.pull(cmd, l.verb, args, how, asked)
			},
		}
		cmd.Flags().StringVar(&how.reason, "reason", "", "why; kept with who and when")
		cmd.Flags().BoolVar(&how.dry, "dry-run", false, "say what would change, and change nothing")
		if can("POST", "/transactions:"+l.verb) {
			cmd.Flags().IntVar(&how.most, "max", 0, "with FILTER=VALUE, as in ls: nothing beyond so many is touched")
		}
		asClient(cmd)
		if l.args != nil {
			l.args(cmd)
		}
		all = append(all, cmd)
	}
	return all
}

// pull pulls a lever on each object and prints a line for each. After an object for which the lever is refused, it goes
// on with the next one, and makes the exit code 1.
func (d *door) pull(cmd *cobra.Command, verb string, objects []string, how pulling, asJSON bool) error {
	p, refused := paperOf(cmd), 0
	for i, object := range objects {
		r, err := d.pullOne(cmd, verb, object, how)
		var problem *client.Problem
		if errors.As(err, &problem) && len(objects) > 1 {
			refused++
			r = record{"object": object, "result": "refused", "code": problem.Code, "detail": problem.Detail}
		} else if err != nil {
			return err
		}
		if verb == "move" && i+1 < len(objects) && how.extra["place"] != nil && err == nil {
			if how.extra["place"], err = d.behind(how.extra["place"], object); err != nil {
				return err
			}
		}
		if asJSON {
			if err := printJSON(cmd, r); err != nil {
				return err
			}
			continue
		}
		said := r.text("result")
		switch {
		case verb == "move" && r.text("id") != "":
			said = "done: it is " + r.text("id") + " now"
		case r.text("redrive_of") != "":
			said = "done: redriven as " + r.text("id")
		case r.text("detail") != "":
			said += ": " + r.text("detail")
		case r.text("at") != "":
			said += ": " + r.text("at")
		case verb == "purge":
			said = fmt.Sprintf("done: %d cancelled", r.whole("cancelled"))
			if r.at("more") == true {
				said += "; more wait"
			}
		case r.at("changed") == false:
			said += ": it was so already"
		}
		if how.dry {
			said = "would be " + said
		}
		p.indented(cmd.OutOrStdout(), object, min(len(object)+2, 40), said)
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d refused", refused, len(objects))
	}
	return nil
}

// pullOne pulls a lever on one object: the answer of the API, and which object it is about.
func (d *door) pullOne(cmd *cobra.Command, verb, object string, how pulling) (record, error) {
	noun := "transactions"
	if path := objectPath(object); path != "" {
		noun = strings.Split(path, "/")[1]
	}
	if !can("POST", "/"+noun+"/{}/"+verb) {
		return nil, usage(cmd, fmt.Errorf("there is no %s of %s: want one of %s", verb, noun,
			strings.Join(nounsWith(verb), ", ")))
	}
	body, err := how.body()
	if err != nil {
		return nil, err
	}
	query := ""
	if how.dry {
		query = "?dry_run=true"
	}
	var r record
	err = d.about(object, func(path string) error {
		_, _, b, err := d.raw("POST", path+"/"+verb+query, body)
		if err == nil {
			r, err = parse(b)
		}
		return err
	})
	if err == nil {
		r["object"] = object
	}
	return r, err
}

// nounsWith are the nouns that have a lever.
func nounsWith(verb string) []string {
	var list []string
	for _, op := range client.Operations {
		if noun, ok := strings.CutSuffix(braces.ReplaceAllString(op.Path, "{}"), "/{}/"+verb); ok {
			list = append(list, strings.TrimPrefix(noun, "/"))
		}
	}
	return list
}
