package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/manifest"
)

// applyOptions are the flags of postern apply.
type applyOptions struct {
	files         []string
	label, reason string
	dry, prune    bool
}

func applyCommand() *cobra.Command {
	var o applyOptions
	cmd := asClient(&cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Make contexts, pools, senders, types and more what files say",
		Long: trim(`
			Make everything what files say, in one commit: all of it or, where anything is refused, nothing; then
			each fault is named with file, line and column. Done twice it changes nothing the second time. A
			file is YAML or JSON and has any number of documents, in any order:

			  kind: pool            # context, pool, sender, dispatcher, queue, tool, source, channel,
			  name: payers          # processor, authorization, subscription
			  context: shop         # else that of --context
			  settings:             # the body of its PUT: what is left out takes the default
			    after_failure: block

			A text may be {from_file: PATH}, beside the file, or {from_env: NAME}: a secret has to be.

			With --label Postern remembers what the files name. --prune then also removes what the same label named
			before and no label names now, as far as it is not in use. A label belongs to the context of --context.

			  postern apply -f deploy/ --dry-run
			  postern apply -f deploy/ --label shop --prune --reason 'release 42'
			  helm template postern | postern apply -f -

			Exit codes: 0 done, or there was nothing to change; 1 refused, and nothing has changed; 6 --dry-run found
			changes. The same at the start of a process: postern serve --config-file.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runApply(cmd, o) },
	})
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "file", "f", nil,
		"a file, a directory of *.yaml, *.yml and *.json, or - for stdin; may be given again")
	f.BoolVar(&o.dry, "dry-run", false, "show what would change, and change nothing")
	f.StringVar(&o.label, "label", "", "keep what these files name under this name")
	f.BoolVar(&o.prune, "prune", false, "remove what the label named before and no label names now")
	f.StringVar(&o.reason, "reason", "", "kept in the audit rows")
	return cmd
}

func runApply(cmd *cobra.Command, o applyOptions) error {
	asked, err := asJSON(cmd)
	switch {
	case err != nil:
		return err
	case len(o.files) == 0:
		return usage(cmd, errors.New("want -f FILE: what there is to be"))
	case o.prune && o.label == "":
		return usage(cmd, errors.New("--prune wants --label: only what was applied under it is removed"))
	}
	for _, name := range o.files {
		if _, err := os.Stat(name); name != "-" && err != nil {
			return usage(cmd, err)
		}
	}
	documents, err := manifest.Read(cmd.InOrStdin(), o.files...)
	if err != nil {
		return err
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	query := url.Values{}
	if o.dry {
		query.Set("dry_run", "true")
	}
	if o.reason != "" {
		query.Set("reason", o.reason)
	}
	body := map[string]any{"documents": documents}
	if o.label != "" {
		body["label"], body["prune"] = o.label, o.prune
	}
	_, _, b, err := d.send(http.MethodPost, "/apply?"+query.Encode(), body)
	if err != nil {
		return whereRefused(err, documents)
	}
	var done client.Applied
	if err := json.Unmarshal(b, &done); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if asked {
		_, err = cmd.OutOrStdout().Write(append(b[:len(b):len(b)], '\n'))
	} else {
		printApplied(cmd, done)
	}
	if err == nil && o.dry && done.Changed > 0 {
		return &failure{code: exitChanges,
			err: fmt.Errorf("%s would change; nothing was changed", fault.Many(done.Changed, "thing"))}
	}
	return err
}

// printApplied writes a line for each thing, and one for each setting that differs. Nothing is shortened.
func printApplied(cmd *cobra.Command, done client.Applied) {
	rows := [][]string{{"KIND", "CONTEXT", "NAME", "RESULT", "SETTING", "WAS", "BECOMES"}}
	for _, t := range done.Things {
		row := []string{t.Kind, optional(t.Context), t.Name, string(t.Result)}
		if len(t.Differences) == 0 {
			rows = append(rows, row)
		}
		for _, f := range t.Differences {
			rows = append(rows, append(row, strings.TrimPrefix(f.Field, "/"), shown(f.Was), shown(f.Becomes)))
			row = []string{"", "", "", ""}
		}
	}
	printTable(cmd, rows)
	for _, t := range done.Things {
		for _, w := range t.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s %s: %s\n", t.Kind, t.Name, w)
		}
	}
}

func optional(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// shown is a setting as JSON, texts without quotes, and - for none.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return v
	}
	b, _ := json.Marshal(v) // as it was read
	return string(b)
}

// whereRefused says of everything that was refused where it stands in the files.
func whereRefused(err error, documents []*manifest.Document) error {
	var p *client.Problem
	if !errors.As(err, &p) {
		return err
	}
	raw, _ := json.Marshal(p.AdditionalProperties["refused"])
	lines := manifest.Refusals(raw, documents)
	if len(lines) == 0 {
		return err
	}
	return &failure{code: exitBad, err: errors.New("nothing was changed:\n" + strings.Join(lines, "\n"))}
}
