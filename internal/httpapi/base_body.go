package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

const batchPath = "/transactions:batch"

// readBody reads the whole body within its limits (timed says until when), checks its media type, and passes it on only
// if it is JSON that we accept. Newline-delimited items of a batch are checked one by one, later.
func (a *API) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			if err := checkMedia(r); err != nil {
				a.refuseBody(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		body, err := a.readAll(r)
		switch {
		case err != nil:
		case len(body) > 0:
			err = a.checkBody(r, body)
		default:
			err = checkMedia(r)
		}
		if err != nil {
			a.refuseBody(w, r, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// readAll reads the whole body, unless it is larger than its limit.
func (a *API) readAll(r *http.Request) (body []byte, err error) {
	limit, name := a.Limits.Body, "request"
	switch {
	case r.URL.Path == batchPath:
		limit, name = a.Limits.Batch, "batch"
	case strings.HasPrefix(r.URL.Path, messagesPath), doorPath.MatchString(r.URL.Path):
		// the text of a message alone may have as much as another body
		limit, name = a.Limits.Batch, "message"
	}
	large := r.ContentLength > limit // then it is not read at all
	if !large {
		body, err = io.ReadAll(io.LimitReader(r.Body, limit+1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.Retry, "body_timeout", "the body did not arrive within %d s", a.Limits.BodyRead)
	case err != nil:
		return nil, fault.New(fault.Invalid, "malformed_json", "the body broke off")
	case large, int64(len(body)) > limit:
		return nil, fault.New(fault.Invalid, "too_large", "the %s has more than %d bytes, the limit of a %s body",
			name, limit, name)
	}
	return body, nil
}

// refuseBody answers a request whose body is refused; a worker's caller, in the words of the contract of workers.
func (a *API) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	if strings.Contains(r.URL.Path, peerDispatch) || doorPath.MatchString(r.URL.Path) {
		err = toWorkerCaller(err)
	}
	a.refuse(w, r, err)
}

// checkMedia refuses a request that writes, has no body, and names another media type than JSON: those that a page may
// send unasked, of text and of forms, move no lever.
func checkMedia(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	_, err := mediaOf(r)
	return err
}

// mediaOf says as what a body is read: as JSON, also where nothing is said, or as JSON by lines. Another is refused.
func mediaOf(r *http.Request) (media string, err error) {
	said := r.Header.Get("Content-Type")
	media, _, err = mime.ParseMediaType(said)
	switch {
	case said == "", err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")):
		return "application/json", nil
	case err == nil && media == ndjson && r.URL.Path == batchPath:
		return ndjson, nil
	}
	return "", fault.New(fault.Invalid, "unsupported_media_type",
		"Content-Type %q: send application/json", fault.Clip(said))
}

// checkBody refuses what is not JSON, and names what huma should take it for.
func (a *API) checkBody(r *http.Request, body []byte) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.Invalid, "unsupported_media_type",
			"Content-Encoding %q: send the body as it is, without an encoding", fault.Clip(e))
	}
	media, err := mediaOf(r)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", media)
	if media == ndjson {
		return nil
	}
	return a.strict(body)
}

// strict refuses JSON that we do not accept.
func (a *API) strict(body []byte) error {
	if err := strict.Check(body, a.Limits.Depth); err != nil {
		return malformed(err)
	}
	return nil
}

func malformed(err error) error {
	return fault.New(fault.Invalid, "malformed_json", "the body is not JSON that we accept: %s", err)
}

const ndjson = "application/x-ndjson"

// decode validates raw against the schema of into, by its name in the document, and reads it.
func (a *API) decode(raw []byte, into any, what string) error {
	registry := a.huma.OpenAPI().Components.Schemas
	schema := registry.Schema(reflect.TypeOf(into).Elem(), true, what)
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return malformed(err)
	}
	res := &huma.ValidateResult{}
	path := huma.NewPathBuffer([]byte{}, 0)
	path.Push("body")
	huma.Validate(registry, schema, path, huma.ModeWriteToServer, v, res)
	if len(res.Errors) > 0 {
		f := &fault.Error{Kind: fault.Invalid, Code: "invalid"}
		var said []string
		for _, err := range res.Errors {
			field := fieldOf(err)
			f.Fields = append(f.Fields, field)
			said = append(said, sentence(field))
		}
		f.Detail = strings.Join(said[:min(4, len(said))], "; ")
		return f
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.At("", "%s", err)
	}
	return nil
}
