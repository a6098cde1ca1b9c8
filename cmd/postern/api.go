package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/app"
)

func apiCommand() *cobra.Command {
	var data, file, reason string
	var headers []string
	cmd := &cobra.Command{
		Use:   "api METHOD PATH",
		Short: "Make any call of the API, with key, context and readable errors",
		Long: trim(`
			Make a call of the API and print the body of its answer, indented on a terminal. postern openapi
			is the list of all calls.

			  postern api GET /limits
			  postern api PUT /dispatchers/PAY -d '{"worker_url": "http://127.0.0.1:9000"}' --reason "first type"
			  postern api POST '/queues/claim-7f3/drain' -f body.json
			  postern api GET '/transactions?state=FAILED' -H 'Postern-Context: shop'`),
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeCalls,
		RunE: func(cmd *cobra.Command, args []string) error {
			method := strings.ToUpper(args[0])
			if methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}; !slices.Contains(methods, method) {
				return usage(cmd, fmt.Errorf("METHOD is %q%s: want %s", args[0], perhaps(method, methods),
					strings.Join(methods, ", ")))
			}
			body, err := bodyOf(cmd, data, file)
			if err != nil {
				return usage(cmd, err)
			}
			header, err := headerOf(headers)
			if err != nil {
				return usage(cmd, err)
			}
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			path := "/" + strings.TrimPrefix(args[1], "/")
			if reason != "" {
				join := "?"
				if strings.Contains(path, "?") {
					join = "&"
				}
				path += join + "reason=" + url.QueryEscape(reason)
			}
			return d.call(cmd, method, path, header, body)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&data, "data", "d", "", "the body: JSON, @FILE, or - for standard input")
	f.StringVarP(&file, "file", "f", "", "the file with the body, or - for standard input")
	f.StringVar(&reason, "reason", "", "of a change: why; kept with who and when")
	f.StringArrayVarP(&headers, "header", "H", nil, "NAME: VALUE, may be repeated")
	return asClient(cmd)
}

// bodyOf reads the body of a call: data as content has it, or a file; nil for none.
func bodyOf(cmd *cobra.Command, data, file string) (io.Reader, error) {
	switch {
	case data != "" && file != "":
		return nil, errors.New("give the body with -d or with -f, not both")
	case file == "-":
		data = file
	case file != "":
		data = "@" + file
	}
	if data == "" {
		return nil, nil
	}
	b, err := content(cmd, data)
	if err != nil {
		return nil, err
	}
	return bytes.NewReader(b), nil
}

// headerOf reads NAME: VALUE....
func headerOf(list []string) (http.Header, error) {
	header := http.Header{}
	for _, h := range list {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, errors.New("-H " + h + ": want NAME: VALUE")
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return header, nil
}

// call makes one call and passes on what is answered, a stream too as it comes.
func (d *door) call(cmd *cobra.Command, method, path string, header http.Header, body io.Reader) error {
	res, err := d.Do(d.ctx, method, path, header, body)
	if err == nil {
		err = client.Refused(res)
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	out := cmd.OutOrStdout()
	if _, _, terminal := app.Terminal(os.Stdout); terminal && strings.Contains(res.Header.Get("Content-Type"), "json") {
		b, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		var pretty bytes.Buffer
		if json.Indent(&pretty, b, "", "  ") == nil {
			b = pretty.Bytes()
		}
		_, err = out.Write(b)
		return err
	}
	_, err = io.Copy(out, res.Body)
	if d.ctx.Err() != nil { // Ctrl-C ends a stream
		err = nil
	}
	return err
}
