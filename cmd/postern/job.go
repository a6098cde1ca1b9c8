package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// running are the flags of run.
type running struct {
	typ, queue    string
	topic         string
	env           []string
	timeout, wait time.Duration
	retries       int
	network       bool
	prerequisites []string
	ref           int64
	key           string
}

func runCommand() *cobra.Command {
	var r running
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Have a runner execute a script, and follow it to its end if asked",
		Long: trim(`
			Post a script as a job. The next runner of its type that has a free slot executes it; without one it
			waits for as long as it takes (postern api GET /jobs/ID/why says so). With --wait its output is shown
			while it runs, and the exit code is that of the script, or 4 if it has not ended by then. If no answer
			came, run it again with the same --key: that makes no second job.

			  postern run report.py --env MONTH=2026-11 --key report-2026-11 --wait 10m
			  postern run report.py --retries 3 --prerequisite 'ok by finance'
			  postern run deploy --type sal --network --wait 1h`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&r.typ, "type", "", "its script type [by the end of the file's name: .py is python]")
	f.StringVarP(&r.queue, "queue", "q", "", "what it stays in order with (none: it waits for no other)")
	f.StringVar(&r.topic, "topic", "", "for runners that take what names this alone (none: those of its type)")
	f.StringArrayVar(&r.env, "env", nil, "K=V, may be repeated")
	f.DurationVar(&r.timeout, "timeout", 0, "for each try [10m]")
	f.IntVar(&r.retries, "retries", 0, "further tries")
	f.BoolVar(&r.network, "network", false, "it may use the network of its runner")
	f.StringArrayVar(&r.prerequisites, "prerequisite", nil,
		"a name that it waits for (postern job met); may be repeated")
	f.Int64Var(&r.ref, "ref", -1, "your number for it; the same again is the same job")
	f.StringVar(&r.key, "key", "", keyFlag)
	f.DurationVar(&r.wait, "wait", 0, "follow it to its end for so long")
	return asClient(cmd)
}

// keyFlag says what a key is for.
const keyFlag = "your name for this request; the same again with the same content makes nothing new"

// keyed is the header of a key, which door.raw takes; none without one.
func keyed(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Idempotency-Key", key}
}

// run posts a script, and follows it for --wait.
func (r *running) run(cmd *cobra.Command, file string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	body, err := r.job(file)
	if err != nil {
		return usage(cmd, err)
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	b, j, err := d.posted("/jobs", body, keyed(r.key)...)
	if err != nil {
		return err
	}
	id := j.text("id")
	if r.wait > 0 {
		if b, j, err = d.follow(cmd, id, r.wait, asked); err != nil {
			return err
		}
	}
	if asked {
		cmd.OutOrStdout().Write(append(b, '\n'))
	} else if r.wait == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", id, j.text("status"))
	}
	return endOfJob(id, j, r.wait)
}

// job is what the flags say of a script.
func (r *running) job(file string) ([]byte, error) {
	script, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if r.typ == "" {
		if r.typ = strings.TrimPrefix(filepath.Ext(file), "."); r.typ == "py" {
			r.typ = "python"
		}
	}
	if r.typ == "" {
		return nil, errors.New("--type is missing: the file's name has no ending that says its script type")
	}
	in := map[string]any{"script": string(script), "script_type": r.typ, "retries": r.retries, "network": r.network}
	env := map[string]string{}
	for _, kv := range r.env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--env %q: want K=V", kv)
		}
		env[k] = v
	}
	in["env_vars"] = env
	if r.queue != "" {
		in["queue"] = r.queue
	}
	if r.topic != "" {
		in["topic"] = r.topic
	}
	if r.timeout != 0 {
		in["timeout"] = int64(r.timeout / time.Second)
	}
	if r.ref >= 0 {
		in["ref"] = r.ref
	}
	if len(r.prerequisites) > 0 {
		in["prerequisites"] = r.prerequisites
	}
	return json.Marshal(in)
}

// endOfJob is the exit code of a script that was followed.
func endOfJob(id string, j record, wait time.Duration) error {
	switch status := j.text("status"); {
	case wait == 0 || status == "finished":
		return nil
	case status != "error":
		return &failure{exitWaited, "postern api GET /jobs/" + id + "/why",
			fmt.Errorf("job %s has not ended after %s: it is %s", id, wait, status)}
	}
	code := exitBad
	if n, err := json.Number(j.text("exit_code")).Int64(); err == nil && n > 0 && n < 256 {
		code = int(n)
	}
	return &failure{code, "postern job logs " + id,
		fmt.Errorf("job %s failed (%s): %s", id, clean(j.text("error.code")), clean(j.text("error.message")))}
}

// follow shows what a job writes until it ends, or the time to wait is over; quiet: only its end.
func (d *door) follow(cmd *cobra.Command, id string, wait time.Duration, quiet bool) ([]byte, record, error) {
	after, until := "", time.Now().Add(wait)
	for {
		b, j, err := d.get("/jobs/" + id + "?wait=1s")
		if err != nil {
			return nil, nil, err
		}
		if !quiet {
			if after, err = d.showLogs(cmd, id, after); err != nil {
				return nil, nil, err
			}
		}
		if j.text("ended_at") != "" || !time.Now().Before(until) {
			return b, j, nil
		}
	}
}

// showLogs writes what a job has written behind a place, and returns the place behind that.
func (d *door) showLogs(cmd *cobra.Command, id, after string) (string, error) {
	for {
		_, _, b, err := d.raw(http.MethodGet, "/jobs/"+id+"/logs?after="+url.QueryEscape(after), nil)
		if err != nil {
			return after, err
		}
		var page struct {
			Items []struct{ Stream, Text string }
			After string
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return after, err
		}
		for _, l := range page.Items {
			to := io.Writer(cmd.OutOrStdout())
			if l.Stream != "stdout" {
				to = cmd.ErrOrStderr()
			}
			fmt.Fprintln(to, clean(l.Text))
		}
		if after = page.After; len(page.Items) == 0 {
			return after, nil
		}
	}
}

func jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "What jobs write, and what they wait for",
		Long: trim(`
			A job is a script that a runner executes: see postern run, and postern runner for the process that does.

			  postern ls jobs
			  postern job logs ID -f
			  postern job met ID 'ok by finance'
			  postern job replay ID --here`),
	}
	cmd.AddCommand(jobLogsCommand(), jobMetCommand(), jobReplayCommand())
	return cmd
}

func jobLogsCommand() *cobra.Command {
	var on bool
	cmd := asClient(&cobra.Command{
		Use:   "logs ID",
		Short: "Show what a job has written",
		Long: trim(`
			Show what the tries of a job have written, each line to where the script wrote it. With -f go on until the
			job ends; the exit code is that of the script then.

			  postern job logs ID
			  postern job logs ID -f`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			id := url.PathEscape(args[0])
			if !on {
				_, err := d.showLogs(cmd, id, "")
				return err
			}
			const long = 365 * 24 * time.Hour
			_, j, err := d.follow(cmd, id, long, false)
			if err != nil {
				return err
			}
			return endOfJob(args[0], j, long)
		},
	})
	cmd.Flags().BoolVarP(&on, "follow", "f", false, "go on until the job ends")
	return cmd
}

func jobMetCommand() *cobra.Command {
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "met ID NAME...",
		Short: "Say that prerequisites of a job are met",
		Long: trim(`
			A job with prerequisites waits until somebody says that all of them are met. The audit keeps who did.

			  postern job met ID 'ok by finance' --reason 'invoice 4711'`),
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := json.Marshal(map[string]any{"met": args[1:], "reason": reason})
			if err != nil {
				return err
			}
			path := "/jobs/" + url.PathEscape(args[0]) + "/prerequisites"
			return printMembers(cmd, http.MethodPost, path, body, "changed")
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "kept in the audit")
	return cmd
}

// printMembers makes a call, and prints some members of its answer, or all of it as JSON if that is asked for.
func printMembers(cmd *cobra.Command, method, path string, body []byte, members ...string) error {
	asked, err := asJSON(cmd)
	if err != nil {
		return err
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	_, _, b, err := d.raw(method, path, body)
	if err != nil {
		return err
	}
	if asked {
		_, err := cmd.OutOrStdout().Write(append(b, '\n'))
		return err
	}
	r, err := parse(b)
	if err != nil {
		return err
	}
	var words []string
	for _, m := range members {
		if text := r.text(m); m != "id" && m != "status" {
			words = append(words, m+"="+text)
		} else {
			words = append(words, text)
		}
	}
	fmt.Fprintln(cmd.OutOrStdout(), strings.Join(words, " "))
	return nil
}
