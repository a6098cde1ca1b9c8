package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func messageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "message",
		Short: "Send messages to contexts, receive them and answer them",
		Long: trim(`
			A message goes from one context to another. It stands in msg_out of the one and, once it is delivered, in
			msg_in of the other, where executors receive it.

			  postern message send shop 'please check order 17' --timeout-result 1h --wait 1h
			  postern -c shop message receive --wait 30s
			  postern -c shop message reply ID --fence FENCE 'it is fine'
			  postern ls messages box=in; postern show messages/ID; postern why messages/ID`),
	}
	cmd.AddCommand(messageSendCommand(), messageReceiveCommand(), messageAckCommand(), messageProcessedCommand(),
		messageReplyCommand(), messageRejectCommand(), messageCancelCommand())
	return cmd
}

// sending are the flags of message send.
type sending struct {
	typ, format, actor, topic, replyTo, peer string
	jobs, envelope                           string
	ref                                      int64
	timeout, ack, result, wait               time.Duration
}

func messageSendCommand() *cobra.Command {
	var s sending
	cmd := asClient(&cobra.Command{
		Use:   "send CONTEXT [TEXT]",
		Short: "Send a message to a context",
		Long: trim(`
			Send a chat, a mail, or jobs to a context in which you have a role. - reads the text from the input. With
			--wait its reply is shown; the exit code is 4 if it has not ended by then, and 1 if it ended in error.

			  postern message send shop 'please check order 17'
			  postern message send shop --type job --jobs jobs.json --wait 10m
			  postern message send shop --type mail --format md - < letter.md`),
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return s.send(cmd, args) },
	})
	f := cmd.Flags()
	f.StringVar(&s.typ, "type", "chat", "chat, mail or job")
	f.StringVar(&s.format, "format", "text", "of the text: text, md, html or logs")
	f.StringVar(&s.actor, "actor", "", "who alone may receive it (none: any executor there)")
	f.StringVar(&s.topic, "topic", "", "what a receiver may ask for")
	f.StringVar(&s.peer, "peer", "", "the other installation that the context is of (none: this one)")
	f.StringVar(&s.replyTo, "reply-to", "", "the id of a message that it answers")
	f.StringVar(&s.jobs, "jobs", "", "a file with a list of jobs, each as POST /jobs takes it")
	f.StringVar(&s.envelope, "envelope", "", "a file with what was signed (DSSE)")
	f.Int64Var(&s.ref, "ref", -1, "your number for it; the same again is the same message")
	f.DurationVar(&s.timeout, "timeout", 0, "within which it is delivered (0: any time)")
	f.DurationVar(&s.ack, "timeout-ack", 0, "within which it is acknowledged, once it is delivered")
	f.DurationVar(&s.result, "timeout-result", 0, "within which it has its result, once it is acknowledged")
	f.DurationVar(&s.wait, "wait", 0, "wait for its end for so long")
	return cmd
}

func (s *sending) send(cmd *cobra.Command, args []string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	body, err := s.body(cmd, args)
	if err != nil {
		return usage(cmd, err)
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	b, m, err := d.posted("/messages", body)
	if err != nil {
		return err
	}
	id := m.text("id")
	for until := time.Now().Add(s.wait); s.wait > 0 && m.text("ended_at") == "" && time.Now().Before(until); {
		if b, m, err = d.get("/messages/" + id + "?wait=" + min(time.Until(until),
			20*time.Second).String()); err != nil {
			return err
		}
	}
	switch {
	case asked:
		_, err = cmd.OutOrStdout().Write(append(b, '\n'))
	case s.wait > 0 && m.text("status") == "processed":
		_, err = fmt.Fprintln(cmd.OutOrStdout(), clean(firstOf("reply.message", "reply.result", "status")(m)))
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", id, m.text("status"))
	}
	if err != nil {
		return err
	}
	return endOfMessage(id, m, s.wait)
}

// endOfMessage is the exit code of a message that was waited for.
func endOfMessage(id string, m record, wait time.Duration) error {
	switch status := m.text("status"); {
	case wait == 0 || status == "processed":
		return nil
	case status == "error":
		return &failure{exitBad, "postern show messages/" + id,
			fmt.Errorf("message %s ended in error (%s): %s", id, clean(m.text("error.code")),
				clean(m.text("error.message")))}
	default:
		return &failure{exitWaited, "postern why messages/" + id,
			fmt.Errorf("message %s has not ended after %s: it is %s", id, wait, status)}
	}
}

// body is what the flags say of a message. Beside an envelope the type and the format are said where they were given:
// they are signed.
func (s *sending) body(cmd *cobra.Command, args []string) ([]byte, error) {
	to := map[string]any{"context": args[0]}
	in := map[string]any{"to": to}
	if s.envelope == "" || cmd.Flags().Changed("type") {
		in["message_type"] = s.typ
	}
	if s.envelope == "" || cmd.Flags().Changed("format") {
		in["message_format_type"] = s.format
	}
	for _, f := range []struct {
		into        map[string]any
		name, value string
	}{{to, "actor", s.actor}, {to, "topic", s.topic}, {to, "peer", s.peer}, {in, "reply_to", s.replyTo}} {
		if f.value != "" {
			f.into[f.name] = f.value
		}
	}
	if len(args) > 1 {
		text, err := textOf(cmd, args[1])
		if err != nil {
			return nil, err
		}
		in["message"] = text
	}
	for name, file := range map[string]string{"job": s.jobs, "envelope": s.envelope} {
		if file == "" {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !json.Valid(raw) {
			return nil, fmt.Errorf("%s is no JSON", file)
		}
		in[name] = json.RawMessage(raw)
	}
	if s.ref >= 0 {
		in["ref"] = s.ref
	}
	deadlines := map[string]time.Duration{"timeout": s.timeout, "timeout_ack": s.ack, "timeout_result": s.result}
	for name, d := range deadlines {
		if d%time.Second != 0 {
			return nil, fmt.Errorf("--%s %s: want whole seconds", name, d)
		}
		in[name] = int64(d / time.Second)
	}
	return json.Marshal(in)
}

// textOf is an argument, or the input for -.
func textOf(cmd *cobra.Command, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	text, err := io.ReadAll(cmd.InOrStdin())
	return string(text), err
}

func messageReceiveCommand() *cobra.Command {
	var most int
	var lease, wait time.Duration
	var topic string
	cmd := asClient(&cobra.Command{
		Use:   "receive",
		Short: "Take the oldest messages of msg_in",
		Long: trim(`
			Take the oldest messages that are for the context: each is shown with its id, a fence, and its text.
			Until the lease is over no other receiver gets it; ack, reply, processed and reject want the fence. The
			exit code is 4 where there is none.

			  postern message receive --wait 30s
			  postern message receive --max 10 --lease 5m -o json`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			in := map[string]any{"max": most, "lease": lease.String()}
			if topic != "" {
				in["topic"] = topic
			}
			body, err := json.Marshal(in)
			if err != nil {
				return err
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			_, _, b, err := d.raw(http.MethodPost, "/messages:receive?wait="+wait.String(), body)
			if err != nil {
				return err
			}
			if len(b) == 0 {
				return &failure{exitWaited, "", errors.New("there is no message")}
			}
			if asked {
				_, err = cmd.OutOrStdout().Write(append(b, '\n'))
				return err
			}
			return printReceived(cmd.OutOrStdout(), b)
		},
	})
	f := cmd.Flags()
	f.IntVar(&most, "max", 1, "how many")
	f.DurationVar(&lease, "lease", 30*time.Second, "for how long no other receiver gets them")
	f.DurationVar(&wait, "wait", 0, "wait for one for so long, at most 60s")
	f.StringVar(&topic, "topic", "", "those of this topic alone")
	return cmd
}

func printReceived(w io.Writer, b []byte) error {
	var page struct {
		Items []struct {
			ID     string `json:"id"`
			Fence  int64  `json:"fence"`
			Type   string `json:"message_type"`
			Caller string `json:"caller_id"`
			Text   string `json:"message"`
		}
	}
	if err := json.Unmarshal(b, &page); err != nil {
		return err
	}
	for _, m := range page.Items {
		if _, err := fmt.Fprintf(w, "%s %d %s from %s\n%s\n", m.ID, m.Fence, m.Type, clean(m.Caller),
			clean(m.Text)); err != nil {
			return err
		}
	}
	return nil
}

// judging makes a command that says something of a message that one holds.
func judging(use, short, long, verb string, args cobra.PositionalArgs,
	body func(cmd *cobra.Command, args []string) (any, error)) *cobra.Command {
	var fence int64
	cmd := asClient(&cobra.Command{
		Use: use, Short: short, Long: trim(long), Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if fence <= 0 {
				return usage(cmd, errors.New("--fence is missing: the number that receive showed"))
			}
			in, err := body(cmd, args)
			if err != nil {
				return err
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			var raw []byte
			if in != nil {
				if raw, err = json.Marshal(in); err != nil {
					return err
				}
			}
			_, r, err := d.posted("/messages/"+url.PathEscape(args[0])+"/"+verb, raw,
				"Postern-Fence", strconv.FormatInt(fence, 10))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "changed="+r.text("changed"))
			return err
		},
	})
	cmd.Flags().Int64Var(&fence, "fence", 0, "as receive showed it")
	return cmd
}

func nothing(*cobra.Command, []string) (any, error) { return nil, nil }

func messageAckCommand() *cobra.Command {
	return judging("ack ID", "Say that one has a message", `
		Acknowledge a message: no other receiver is handed it, and timeout_result begins to count.

		  postern message ack ID --fence FENCE`, "ack", cobra.ExactArgs(1), nothing)
}

func messageProcessedCommand() *cobra.Command {
	return judging("processed ID", "Say that a message is done with", `
		End a message that wants no answer.

		  postern message processed ID --fence FENCE`, "processed", cobra.ExactArgs(1), nothing)
}

func messageReplyCommand() *cobra.Command {
	var format string
	cmd := judging("reply ID TEXT", "Answer a message with its result", `
		End a message with its result, which its sender reads with it. - reads the text from the input.

		  postern message reply ID --fence FENCE 'it is fine'`, "reply", cobra.ExactArgs(2),
		func(cmd *cobra.Command, args []string) (any, error) {
			text, err := textOf(cmd, args[1])
			return map[string]any{"message": text, "message_format_type": format}, err
		})
	cmd.Flags().StringVar(&format, "format", "text", "of the text: text, md, html or logs")
	return cmd
}

func messageRejectCommand() *cobra.Command {
	var reason string
	cmd := judging("reject ID", "Refuse a message", `
		End a message in error: its sender reads the reason.

		  postern message reject ID --fence FENCE --reason 'not ours'`, "reject", cobra.ExactArgs(1),
		func(*cobra.Command, []string) (any, error) { return map[string]any{"reason": reason}, nil })
	cmd.Flags().StringVar(&reason, "reason", "", "what its sender is told")
	return cmd
}

func messageCancelCommand() *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "cancel ID",
		Short: "Take back a message that you have sent",
		Long: trim(`
			End a message that has not ended. Jobs that were made of it go on, and their result is late.

			  postern message cancel ID --reason 'sent twice'`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := json.Marshal(map[string]any{"reason": reason})
			if err != nil {
				return err
			}
			return printMembers(cmd, http.MethodPost, "/messages/"+url.PathEscape(args[0])+"/cancel", body, "changed")
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "kept in the audit, and told to who reads the message")
	return cmd
}
