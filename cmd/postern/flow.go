package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
)

func flowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flow",
		Short: "Jobs that need each other: submit, start, cancel, draw and do again",
		Long: trim(`
			A flow is jobs that need each other, without circles. Each starts when those that it needs have
			finished, and reads their results. A job that fails ends the flow: jobs that need it fail, others do not
			start, and jobs that run are stopped.

			  {"jobs": [{"ref": 1, "script": "print(1)", "script_type": "python"},
			            {"ref": 2, "script": "print(2)", "script_type": "python", "dependends": [1]}]}

			  postern flow submit flow.json --start --wait 10m
			  postern flow dag ID --format svg > flow.svg
			  postern flow redrive ID`),
	}
	cmd.AddCommand(flowSubmitCommand(), flowLeverCommand("start", "Start a flow that was submitted without --start"),
		flowLeverCommand("cancel", "End a flow: jobs that run are stopped"), flowDAGCommand(), flowRedriveCommand())
	return cmd
}

func flowSubmitCommand() *cobra.Command {
	var start bool
	var key, signs string
	var wait time.Duration
	cmd := asClient(&cobra.Command{
		Use:   "submit FILE",
		Short: "Store a flow, and start it if asked",
		Long: trim(`
			Store a flow that a file of JSON describes (- for standard input). With --wait it is followed to its
			end: exit code 0 if it finishes, 1 if it does not, 4 if it has not ended by then. If no answer came,
			submit it again with the same --key: that makes no second flow. Jobs with a target are signed for that
			peer, with the key of the actor that submits them.

			  postern flow submit flow.json --start --key report-2026-11 --wait 10m -o json`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := args[0]
			if from != "-" {
				from = "@" + from
			}
			body, err := content(cmd, from)
			if err != nil {
				return usage(cmd, err)
			}
			if start {
				if body, err = withMember(body, "start", "true"); err != nil {
					return usage(cmd, fmt.Errorf("FILE: %w", err))
				}
			}
			return flowMade(cmd, "/flows", body, signs, wait, keyed(key)...)
		},
	})
	cmd.Flags().BoolVar(&start, "start", false, "start it at once")
	cmd.Flags().StringVar(&key, "key", "", keyFlag)
	cmd.Flags().StringVar(&signs, "sign-with", "", signFlag)
	cmd.Flags().DurationVar(&wait, "wait", 0, "follow it to its end for so long")
	return cmd
}

// signFlag describes the key with which jobs for other installations are signed.
const signFlag = "key of the actor, in a file, that signs jobs with a target (POSTERN_ACTOR_KEY_FILE)"

func flowRedriveCommand() *cobra.Command {
	var file, signs string
	var ref int64
	var wait time.Duration
	cmd := asClient(&cobra.Command{
		Use:   "redrive ID",
		Short: "Do a flow in error again, without what had finished",
		Long: trim(`
			Make a new flow of one that ended in error, and start it. A job that had finished is not executed again
			unless it, or one that it needs, has changed: its result is taken over. --file has what changes:
			{"jobs": [...], "env_vars": {...}}, jobs by their refs.

			  postern flow redrive ID --file mended.json --wait 10m`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := []byte("{}")
			if file != "" {
				var err error
				if body, err = content(cmd, "@"+file); err != nil {
					return usage(cmd, fmt.Errorf("--file: %w", err))
				}
			}
			if ref >= 0 {
				var err error
				if body, err = withMember(body, "ref", strconv.FormatInt(ref, 10)); err != nil {
					return usage(cmd, fmt.Errorf("--file: %w", err))
				}
			}
			return flowMade(cmd, "/flows/"+url.PathEscape(args[0])+"/redrive", body, signs, wait)
		},
	})
	cmd.Flags().StringVar(&file, "file", "", "what changes, as JSON")
	cmd.Flags().Int64Var(&ref, "ref", -1, "your number for the new flow; the same again is the same flow")
	cmd.Flags().StringVar(&signs, "sign-with", "", signFlag)
	cmd.Flags().DurationVar(&wait, "wait", 0, "follow it to its end for so long")
	return cmd
}

// withMember sets a member of an object of JSON.
func withMember(object []byte, name, value string) ([]byte, error) {
	in := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &in); err != nil {
		return nil, err
	}
	in[name] = json.RawMessage(value)
	return json.Marshal(in)
}

// flowMade makes a flow by a call, and follows it. more are headers of the call.
func flowMade(cmd *cobra.Command, path string, body []byte, signs string, wait time.Duration, more ...string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	if body, err = d.signTargets(body, signs); err != nil {
		if errors.As(err, new(*client.Problem)) {
			return err
		}
		return usage(cmd, err)
	}
	b, f, err := d.posted(path, body, more...)
	if err != nil {
		return err
	}
	id := f.text("id")
	for until := time.Now().Add(wait); f.text("ended_at") == "" && time.Now().Before(until); {
		length := min(time.Until(until)+time.Second, 30*time.Second).Truncate(time.Second)
		if b, f, err = d.get("/flows/" + id + "?wait=" + length.String()); err != nil {
			return err
		}
	}
	if asked {
		cmd.OutOrStdout().Write(append(b, '\n'))
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", id, f.text("status"))
	}
	switch status := f.text("status"); {
	case wait == 0 || status == "finished":
		return nil
	case status == "error":
		return &failure{exitBad, "postern flow redrive " + id,
			fmt.Errorf("flow %s failed (%s): %s", id, clean(f.text("error.code")), clean(f.text("error.message")))}
	}
	return &failure{exitWaited, "postern api GET /flows/" + id + "/why",
		fmt.Errorf("flow %s has not ended after %s: it is %s", id, wait, f.text("status"))}
}

func flowLeverCommand(verb, short string) *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   verb + " ID",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := json.Marshal(map[string]string{"reason": reason})
			if err != nil {
				return err
			}
			path := "/flows/" + url.PathEscape(args[0]) + "/" + verb
			return printMembers(cmd, http.MethodPost, path, body, "result", "changed")
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "kept in the audit")
	return cmd
}

func flowDAGCommand() *cobra.Command {
	var format string
	cmd := asClient(&cobra.Command{
		Use:   "dag ID",
		Short: "Draw the jobs of a flow, and which need which",
		Long: trim(`
			Draw the jobs of a flow with their statuses: as mermaid, svg, or json.

			  postern flow dag ID --format svg > flow.svg`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := map[string]string{
				"mermaid": "text/vnd.mermaid",
				"svg":     "image/svg+xml",
				"json":    "application/json",
			}[format]
			if kind == "" {
				return usage(cmd, fmt.Errorf("--format %q: want mermaid, svg or json", format))
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			_, _, b, err := d.raw(http.MethodGet, "/flows/"+url.PathEscape(args[0])+"/dag", nil, "Accept", kind)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	})
	cmd.Flags().StringVar(&format, "format", "mermaid", "mermaid, svg or json")
	return cmd
}
