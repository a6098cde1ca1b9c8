package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/outbox"
)

// asClient gives a command the flags of a client: the URL of the API, the context, and the file with the API key.
func asClient(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.SortFlags = false
	f.String("url", "", "of the API (POSTERN_URL) [http://127.0.0.1:8080]")
	f.String("context", "", "the tenant (POSTERN_CONTEXT) [that of the key, else default]")
	f.String("api-key-file", "", "file with the API key (POSTERN_API_KEY_FILE, or the key itself in POSTERN_API_KEY)")
	return cmd
}

// door is the API that a command talks to.
type door struct {
	*client.Client
	ctx context.Context
}

// dial makes the door that flags and environment name. It does no I/O but to read the key.
func dial(cmd *cobra.Command) (*door, error) {
	at := urlOf(cmd)
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usage(cmd, fmt.Errorf("--url (POSTERN_URL) is %q: want http://host:port or https://host", at))
	}
	c := client.New(at)
	c.Context, c.Agent, c.Key = setting(cmd, "context", "POSTERN_CONTEXT"), "postern-cli/"+version(), os.Getenv("POSTERN_API_KEY")
	if file := setting(cmd, "api-key-file", "POSTERN_API_KEY_FILE"); file != "" && (c.Key == "" || cmd.Flags().Changed("api-key-file")) {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, usage(cmd, fmt.Errorf("the API key cannot be read: %w", err))
		}
		c.Key = strings.TrimSpace(string(b))
	}
	// No proxy and no redirect hides which server answers.
	c.HTTP = &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	d := &door{c, cmd.Context()}
	if file := os.Getenv("POSTERN_ACTOR_KEY_FILE"); file != "" {
		key, err := actorKey(file)
		if err != nil {
			return nil, usage(cmd, err)
		}
		d.signs(key)
	}
	return d, nil
}

// urlOf is the address of the API that flag and environment name.
func urlOf(cmd *cobra.Command) string {
	return cmp.Or(setting(cmd, "url", "POSTERN_URL"), "http://127.0.0.1:8080")
}

// setting is a flag's value, else the variable's.
func setting(cmd *cobra.Command, flag, variable string) string {
	if v, _ := cmd.Flags().GetString(flag); v != "" || cmd.Flags().Changed(flag) {
		return v
	}
	return os.Getenv(variable)
}

// raw sends a request and returns the whole answer, or a *client.Problem if the API refuses the request. more are
// headers: name, value and so on.
func (d *door) raw(method, path string, body []byte, more ...string) (status int, header http.Header, answer []byte, err error) {
	with := http.Header{}
	for i := 0; i < len(more); i += 2 {
		with.Set(more[i], more[i+1])
	}
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(body)
	}
	res, err := d.Do(d.ctx, method, path, with, sent)
	if err == nil {
		err = client.Refused(res)
	}
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, res.Header, answer, err
}

// get reads a resource: the bytes as they came, and the object in them.
func (d *door) get(path string) ([]byte, record, error) { return d.object(http.MethodGet, path, nil) }

// posted posts something, and reads what is answered as get does.
func (d *door) posted(path string, body []byte, header ...string) ([]byte, record, error) {
	return d.object(http.MethodPost, path, body, header...)
}

func (d *door) object(method, path string, body []byte, header ...string) ([]byte, record, error) {
	_, _, b, err := d.raw(method, path, body, header...)
	if err != nil {
		return nil, nil, err
	}
	r, err := parse(b)
	return b, r, err
}

// parse reads an object; numbers keep their digits.
func parse(b []byte) (record, error) {
	r := record{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return r, nil
}

// find reads a transaction by what people call it: its id, or the uid that its poster gave it.
func (d *door) find(name string) ([]byte, record, error) {
	if _, err := outbox.ParseID(name); err == nil {
		b, r, err := d.get("/transactions/" + name)
		if !refusedAs(err, "not_found") {
			return b, r, err
		}
	}
	b, r, err := d.get("/transactions/by-uid/" + url.PathEscape(name))
	if refusedAs(err, "invalid") {
		err = &client.Problem{Code: "not_found", Status: http.StatusNotFound, Detail: fmt.Sprintf("no transaction has the id or uid %q", name)}
	}
	return b, r, err
}

// about makes a call about one object: NOUN/NAME, or the id or uid of a transaction. call gets the path of
// the object.
func (d *door) about(object string, call func(path string) error) error {
	if path := objectPath(object); path != "" {
		return call(path)
	}
	name := transactionName(object)
	if _, err := outbox.ParseID(name); err == nil {
		if err = call("/transactions/" + name); !refusedAs(err, "not_found") {
			return err
		}
	}
	_, r, err := d.find(name)
	if err != nil {
		return err
	}
	return call("/transactions/" + r.text("id"))
}

// unreached says whether no connection came about, so that nothing was sent.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unsent says whether a request cannot have arrived: no connection came about, or none that is secret as asked.
func unsent(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return unreached(err) || errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &certificate) ||
		errors.As(err, &record)
}

func refusedAs(err error, code string) bool {
	var p *client.Problem
	return errors.As(err, &p) && p.Code == code
}

// listsWhatIsMeant is the command that lists what a command did not find: by the command, such as postern key, else
// by the noun of an argument, else transactions.
func listsWhatIsMeant(cmd *cobra.Command) string {
	noun := ""
	words := append(strings.Fields(cmd.CommandPath()), cmd.Flags().Args()...)
	for _, word := range words[1:] {
		word, _, object := strings.Cut(strings.TrimPrefix(word, "/"), "/")
		if _, listed := nouns()[plural(word)]; listed && (object || word != plural(word)) && noun == "" {
			noun = plural(word)
		}
	}
	switch noun {
	case "", "transactions":
		return "postern ls"
	case "api-keys":
		return "postern key ls"
	}
	return "postern ls " + noun
}

// further is what to do about an error of a client command, and its exit code.
func further(cmd *cobra.Command, err error) (code int, next string) {
	var p *client.Problem
	var lost *url.Error
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return exitUnreachable, "there is no TLS at that port: give its address with http:// (--url or POSTERN_URL)"
	case errors.As(err, &lost):
		return exitUnreachable, "start `postern serve` or `postern dev`, or say where it is with --url or POSTERN_URL"
	case strings.Contains(err.Error(), "is it Postern that listens there?"): // no answer of an API
		return exitBad, "say with --url or POSTERN_URL where the API is"
	case !errors.As(err, &p):
		return exitBad, ""
	}
	code = exitBad
	switch p.Code {
	case "unauthenticated":
		next = "give the key with POSTERN_API_KEY or --api-key-file"
	case "not_found":
		next = "`" + listsWhatIsMeant(cmd) + "` lists those of this context; --context names another context"
	case "invalid":
		next = "see `" + cmd.CommandPath() + " -h`"
	case "forbidden":
		next = "a key with the role that is named may do it: POSTERN_API_KEY or --api-key-file says which is used"
	case "unknown_type":
		next = `postern api PUT /dispatchers/TYPE -d '{"worker_url": "http://WORKER"}'`
	case "wrong_state":
		next = "`postern show` tells what it is and how it came to it, `postern why` what it waits for"
	case "cancel_refused":
		next = "`postern why` tells what it waits for and which lever would move it"
	case "idempotency_conflict":
		next = "`postern show UID` shows what the key names; another transaction wants another --uid"
		if cmd.Flags().Lookup("key") != nil { // of a job or a flow, whose id the sentence has
			next = "what is to be made besides wants another --key"
		}
	}
	if p.Status == http.StatusServiceUnavailable { // such as database_unavailable, commit_unknown, draining
		code = exitUnreachable
	}
	if p.Retryable && next == "" {
		next = "run it again"
		if p.RetryAfter != nil {
			next += fmt.Sprintf(" in %d s", *p.RetryAfter)
		}
	}
	return code, next
}
