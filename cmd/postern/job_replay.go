package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/runner"
	"github.com/postern-dev/postern/internal/sandbox"
)

func jobReplayCommand() *cobra.Command {
	var r runnerFlags
	var here bool
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "replay ID --here",
		Short: "Execute a job again on this machine, as its runner did, and tell no server",
		Long: trim(`
			Execute a job again on this machine: its script, its environment as it was frozen, its inputs and its
			limits, in the sandbox of postern runner. Nothing is recorded of it but who has read the environment, which
			is why it wants the key of an executor, and stands in the audit. What the script does to others it does
			again, under the same POSTERN_TOKEN.

			What it writes is shown as it runs. The exit code is that of the script, and its result comes last. A
			runner that was started with other flags of the sandbox than these gave the script other limits.

			  postern job replay ID --here --reason 'why is the sum wrong?'`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !here {
				return usage(cmd, errors.New("--here is missing: the script is executed on this machine"))
			}
			return r.replay(cmd, args[0], reason)
		},
	})
	cmd.Flags().BoolVar(&here, "here", false, "required: on this machine")
	cmd.Flags().StringVar(&reason, "reason", "", "kept in the audit")
	r.boxFlags(cmd)
	return cmd
}

// replay executes a job again.
func (r *runnerFlags) replay(cmd *cobra.Command, id, reason string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	if err := r.readBox(cmd); err != nil {
		return usage(cmd, err)
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	box, err := sandbox.New(cmd.Context(), r.box)
	if err != nil {
		return err
	}
	j, err := d.given(id, reason)
	if err != nil {
		return err
	}
	o := runner.Replay(cmd.Context(), box, j, func(l sandbox.Line) {
		to := cmd.OutOrStdout()
		if l.Stream != "stdout" || asked {
			to = cmd.ErrOrStderr()
		}
		fmt.Fprintln(to, clean(l.Text))
	})
	result := o.Result
	if o.Code != "" {
		result = o.Partial
	}
	if asked {
		err = printJSON(cmd, map[string]any{"job": j.Job, "attempt": j.Attempt, "code": o.Code, "error": o.Error,
			"exit_code": o.Exit, "result": result, "isolation": o.Level})
	} else {
		text, _ := json.Marshal(result) // of strings
		fmt.Fprintf(cmd.ErrOrStderr(), "result %s\n", text)
	}
	if err != nil || o.Code == "" {
		return err
	}
	code := exitBad
	if o.Exit != nil && *o.Exit > 0 && *o.Exit < 256 {
		code = *o.Exit
	}
	return &failure{code, "postern job logs " + id,
		fmt.Errorf("job %s failed here: %s %s", id, o.Code, clean(o.Error))}
}

// given reads what the runner of a job was given.
func (d *door) given(id, reason string) (j runner.Job, err error) {
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return j, err
	}
	path := "/jobs/" + url.PathEscape(id)
	_, _, b, err := d.raw(http.MethodPost, path+"/replay", body)
	if err != nil {
		return j, err
	}
	if err := json.Unmarshal(b, &j); err != nil || !j.Omitted {
		return j, err
	}
	_, _, j.Inputs, err = d.raw(http.MethodGet, path+"/inputs", nil)
	return j, err
}
