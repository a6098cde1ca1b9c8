package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postern-dev/postern/api/client"
)

// A response of 400 or above is a refusal, as a problem where it is a problem document; any other is none.
func FuzzRefused(f *testing.F) {
	for _, s := range []string{``, `{}`, `null`, `[]`, `{"status":409,"code":"c","detail":"d"}`, `{"status":"409"}`,
		`{"detail":7}`, `{"errors":[{"pointer":"/a"}]}`, `<html>`, `{"retryable":true} x`} {
		f.Add(409, "application/problem+json", []byte(s))
		f.Add(502, "text/html", []byte(s))
		f.Add(200, "application/problem+json; charset=utf-8", []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, media string, body []byte) {
		res := &http.Response{StatusCode: 100 + (status&0x7fffffff)%500, Status: "x",
			Header:  http.Header{"Content-Type": {media}},
			Body:    io.NopCloser(strings.NewReader(string(body))),
			Request: &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/x"}}}
		err := client.Refused(res)
		if (err != nil) != (res.StatusCode >= 400) {
			t.Errorf("%d: %v", res.StatusCode, err)
		}
		var p *client.Problem
		if errors.As(err, &p) && !strings.HasPrefix(media, "application/problem+json") {
			t.Errorf("%q of %q is a problem: %+v", body, media, p)
		}
		if left, _ := io.ReadAll(res.Body); err == nil && string(left) != string(body) {
			t.Errorf("of %q only %q is left to read", body, left)
		}
	})
}
