package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func processorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "processor",
		Short: "Look at processors, tick them, put batches into their lines",
		Long: trim(`
			A processor executes batches of messages, one tick at a time: High before Med, each batch at once or
			action by action, with retries, cooldowns and callbacks. Its owner puts batches anywhere into a line
			and takes them from anywhere; others send through an authorization.

			  postern api PUT /processors/main -d '{"tick_interval": "1s"}'
			  postern processor insert main @batch.json --position 0
			  postern processor show main
			  postern processor tick main --wait 30s

			docs/processor.md tells how all of it works together.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want ls, show, tick, pause, resume, insert, evict or retry"))
		},
	}
	cmd.AddCommand(listOf("processors", "List processors"), processorShowCommand(), processorTickCommand(),
		processorInsertCommand(), processorEvictCommand(), processorRetryCommand(),
		processorLever("pause", "Refuse ticks; batches are put and evicted all the same"),
		processorLever("resume", "Allow ticks again"))
	return cmd
}

func processorPath(name, what string) string { return objectPath("processors/"+name) + what }

// askBatch posts what is answered with a batch, perhaps with what a tick did. A table leaves out what the batch was
// made of, which postern show has.
func askBatch(cmd *cobra.Command, path string, in any) error {
	b, err := answered(cmd, http.MethodPost, path, in)
	if err != nil {
		return err
	}
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	if asked {
		return printed(cmd, b)
	}
	r, err := parse(b)
	if err != nil {
		return err
	}
	if batch, ok := r["batch"].(map[string]any); ok {
		batch["outcome"] = r["outcome"]
		r = batch
	}
	delete(r, "actions_config")
	delete(r, "msgs")
	paperOf(cmd).record(cmd.OutOrStdout(), r)
	return nil
}

func processorShowCommand() *cobra.Command {
	var line string
	var from, to int64
	cmd := asClient(&cobra.Command{
		Use:   "show NAME",
		Short: "Show a processor, or the batches of one of its lines",
		Long: trim(`
			Show how many batches stand in its lines, what is being executed, who waits for a callback, and
			whether a cooldown in High keeps Med waiting; or, with --line, who stands in a line, from the head,
			250 of them at most.

			  postern processor show main
			  postern processor show main --line Med
			  postern processor show main --line Med --from 250 --to 300`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if line == "" && (cmd.Flags().Changed("from") || cmd.Flags().Changed("to")) {
				return usage(cmd, errors.New("--from and --to are positions in a line: name it with --line"))
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			path := processorPath(args[0], "")
			if line == "" {
				b, _, err := d.get(path)
				if err != nil {
					return err
				}
				return printed(cmd, b)
			}
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			part := url.Values{"priority": {line}, "from": {strconv.FormatInt(from, 10)},
				"to": {strconv.FormatInt(to, 10)}}
			return d.list(cmd, cmd.OutOrStdout(), path[1:]+"/batches", part, asked)
		},
	})
	cmd.Flags().StringVar(&line, "line", "", "High or Med")
	cmd.Flags().Int64Var(&from, "from", 0, "of a line: the first position; 0 is the head")
	cmd.Flags().Int64Var(&to, "to", -1, "of a line: the position behind the last; -1 is its end")
	return cmd
}

func processorTickCommand() *cobra.Command {
	var wait time.Duration
	cmd := asClient(&cobra.Command{
		Use:   "tick NAME",
		Short: "Let a processor look at one batch",
		Long: trim(`
			Look at the batch at the head of High, or of Med if High is empty: end it if it has expired,
			put it to the back while it is in its cooldown, else execute it, or its next action.

			  postern processor tick main
			  postern processor tick main --wait 30s`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askBatch(cmd, processorPath(args[0], "/tick?"+url.Values{"wait": {wait.String()}}.Encode()), nil)
		},
	})
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait for the end of the execution that begins, at most 60s")
	return cmd
}

func processorLever(verb, short string) *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodPost, processorPath(args[0], "/"+verb), map[string]string{"reason": reason})
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	return cmd
}

func processorInsertCommand() *cobra.Command {
	var position, before, after int64
	var priority string
	cmd := asClient(&cobra.Command{
		Use:   "insert NAME BATCH",
		Short: "Put a batch into a line: at the back, at a position, or beside another",
		Long: trim(`
			Put BATCH (JSON, @FILE, or - for standard input: actions_config, msgs, priority, expiration_time) at
			the back of its line, or where a flag says. Position 0 is the head.

			  postern processor insert main @batch.json
			  postern processor insert main @batch.json --position 0 --priority High
			  postern processor insert main - --after 17`),
		Args: cobra.ExactArgs(2),
	})
	cmd.Flags().Int64Var(&position, "position", 0, "from the head; without it the back")
	cmd.Flags().Int64Var(&before, "before", 0, "id of a batch of the same line")
	cmd.Flags().Int64Var(&after, "after", 0, "id of a batch of the same line")
	cmd.Flags().StringVar(&priority, "priority", "", "High or Med; else what the batch says, or Med")
	cmd.MarkFlagsMutuallyExclusive("position", "before", "after")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := content(cmd, args[1])
		if err != nil {
			return usage(cmd, err)
		}
		var batch map[string]json.RawMessage
		if json.Unmarshal(b, &batch) != nil {
			return usage(cmd, errors.New("BATCH: want a JSON object with actions_config and msgs"))
		}
		if priority != "" {
			batch["priority"], _ = json.Marshal(priority)
		}
		spot := map[string]any{"batch": batch}
		for flag, value := range map[string]int64{"position": position, "before": before, "after": after} {
			if cmd.Flags().Changed(flag) {
				spot[flag] = value
			}
		}
		if len(spot) == 1 {
			return askBatch(cmd, processorPath(args[0], "/batches"), batch)
		}
		return askBatch(cmd, processorPath(args[0], "/insert"), spot)
	}
	return cmd
}

func processorEvictCommand() *cobra.Command {
	var position int64
	var priority, reason string
	cmd := asClient(&cobra.Command{
		Use:   "evict NAME [ID]",
		Short: "End a batch that is not being executed: removed_by_owner",
		Long: trim(`
			End a batch by its id, also one that waits for a callback, or the one at a position of a line.

			  postern processor evict main 17
			  postern processor evict main --priority High --position 0`),
		Args: cobra.RangeArgs(1, 2),
	})
	cmd.Flags().Int64Var(&position, "position", 0, "from the head")
	cmd.Flags().StringVar(&priority, "priority", "", "High or Med, which is meant unless said")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with the batch")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := map[string]any{"reason": reason}
		switch byPosition := cmd.Flags().Changed("position"); {
		case byPosition == (len(args) == 2):
			return usage(cmd, errors.New("want an ID, or --position"))
		case byPosition:
			in["position"] = position
			if priority != "" {
				in["priority"] = priority
			}
		default:
			id, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || id < 1 {
				return usage(cmd, errors.New("ID: want the number of a batch"))
			}
			in["id"] = id
		}
		return askBatch(cmd, processorPath(args[0], "/evict"), in)
	}
	return cmd
}

func processorRetryCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use:   "retry LABEL ID",
		Short: "Send a batch again that was not delivered in time",
		Long: trim(`
			A batch is Timed_Out if no worker could be reached for it within deliver_within of its processor. While
			its ttl lasts anybody may send it again, under the same id, to the back of its line. LABEL is the
			authorization through which it was sent.

			  postern api GET '/authorizations/pay/executions?result=timeout'
			  postern processor retry pay 17`),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if id, err := strconv.ParseInt(args[1], 10, 64); err != nil || id < 1 {
				return usage(cmd, errors.New("ID: want the number of a batch"))
			}
			return askBatch(cmd, "/authorizations/"+url.PathEscape(args[0])+"/executions/"+args[1]+"/retry", nil)
		},
	})
}
