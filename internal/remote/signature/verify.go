package signature

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Life is how long a signature holds at most: as long as a request may be under way. Ahead is how far the clock of the
// one who signs may be ahead.
const (
	Life  = 5 * time.Minute
	Ahead = time.Minute
)

// Request is what signatures cover.
type Request struct {
	Method string
	Target string // the URL
	Header http.Header
	Body   []byte
}

// Of is a request that was received, for the URL target, with this body.
func Of(r *http.Request, target string, body []byte) *Request {
	header := r.Header
	if header.Get("Host") == "" { // net/http takes it out
		header = header.Clone()
		header.Set("Host", r.Host)
	}
	return &Request{r.Method, target, header, body}
}

// derived are the components that are no headers, in a request for a URL.
var derived = map[string]func(*Request, *url.URL) string{
	"@method":     func(r *Request, _ *url.URL) string { return r.Method },
	"@target-uri": func(r *Request, _ *url.URL) string { return r.Target },
	"@authority":  func(_ *Request, u *url.URL) string { return authority(u) },
	"@scheme":     func(_ *Request, u *url.URL) string { return strings.ToLower(u.Scheme) },
	"@request-target": func(_ *Request, u *url.URL) string {
		return u.RequestURI()
	},
	"@path": func(_ *Request, u *url.URL) string {
		if p := u.EscapedPath(); p != "" {
			return p
		}
		return "/"
	},
	"@query": func(_ *Request, u *url.URL) string { return "?" + u.RawQuery },
}

// authority is the host of a URL in lower case, with its port unless that is the one of its scheme.
func authority(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// base is what is signed of a request (RFC 9421, section 2.5).
func base(r *Request, covered []string, params string) ([]byte, error) {
	u, err := url.Parse(r.Target)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, name := range covered {
		value := ""
		if f := derived[name]; f != nil {
			value = f(r, u)
		} else {
			lines := r.Header.Values(name)
			if len(lines) == 0 {
				return nil, fmt.Errorf("it covers %q, which was not sent", name)
			}
			value = joined(lines)
		}
		fmt.Fprintf(&b, "%q: %s\n", name, value)
	}
	b.WriteString(`"@signature-params": ` + params)
	return []byte(b.String()), nil
}

func joined(lines []string) string {
	trimmed := make([]string, len(lines))
	for i, l := range lines {
		trimmed[i] = strings.Trim(l, " \t")
	}
	return strings.Join(trimmed, ", ")
}

// Covers returns the first of some components that the signature does not cover, "" if it covers all.
func (s *Signature) Covers(names ...string) (missing string) {
	for _, name := range names {
		if !slices.Contains(s.covered, name) {
			return name
		}
	}
	return ""
}

// Verify says why the signature is not one of key for this request, nil if it is.
func (s *Signature) Verify(r *Request, key ed25519.PublicKey) error {
	if s.Alg != "" && s.Alg != "ed25519" {
		return fmt.Errorf("alg is %q: want ed25519", s.Alg)
	}
	text, err := base(r, s.covered, s.params)
	if err != nil {
		return err
	}
	if !ed25519.Verify(key, text, s.value) {
		return errors.New("it does not hold")
	}
	return nil
}

// Fresh says why the signature is not of now, nil if it is. The sentence tells by how much clocks differ.
func (s *Signature) Fresh(now time.Time) error {
	age := now.Sub(s.Created)
	switch {
	case s.Created.IsZero():
		return errors.New("it does not say when it was created: want the parameter created")
	case s.Expires.Sub(s.Created) > Life:
		return fmt.Errorf("it is to hold for %s: want %s at most between created and expires",
			s.Expires.Sub(s.Created), Life)
	case age < -Ahead:
		return fmt.Errorf("it was created %s ahead of the clock here, which says %s: the clock of the one who "+
			"signs is ahead by that, and %s is taken", told(-age), clock(now), Ahead)
	case !now.Before(s.Expires):
		return fmt.Errorf("it has expired: it was created %s ago by the clock here, which says %s; if it was just "+
			"signed, the clock of the one who signs is behind by that, and a signature holds for %s at most",
			told(age), clock(now), Life)
	}
	return nil
}

func told(d time.Duration) string { return d.Round(time.Second).String() }

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
