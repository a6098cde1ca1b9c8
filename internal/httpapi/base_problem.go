package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/help"
	"github.com/postern-dev/postern/internal/outbox"
)

// problems is every code that a client may see, once: its status, its title, and whether the same
// request may succeed later.
var problems = map[string]struct {
	status    int
	title     string
	retryable bool
}{
	"malformed_json":         {400, "Body is not JSON that we accept", false},
	"bad_cursor":             {400, "Cursor does not fit", false},
	"key_mismatch":           {400, "Idempotency-Key and uid differ", false},
	"key_required":           {400, "An idempotency key is required", false},
	"bad_signature_input":    {400, "Signature cannot be read", false},
	"unauthenticated":        {401, "Not authenticated", false},
	"bad_actor_signature":    {401, "Envelope is not signed by its actor", false},
	"replayed_signature":     {401, "Signature was used before", false},
	"forbidden":              {403, "Not allowed", false},
	"not_found":              {404, "Not found", false},
	"method_not_allowed":     {405, "Method not allowed", false},
	"not_acceptable":         {406, "Not acceptable", false},
	"body_timeout":           {408, "Body came too slowly", true},
	"idempotency_conflict":   {409, "The key names another transaction", false},
	"wrong_state":            {409, "Wrong state", false},
	"cancel_refused":         {409, "Cannot be cancelled", false},
	"already_redriven":       {409, "Redriven already", false},
	"in_use":                 {409, "In use", false},
	"not_reconciled":         {409, "Workers were not asked", false},
	"quarantined":            {409, "In quarantine", true},
	"stale_fence":            {409, "Held by somebody else", false},
	"stale_epoch":            {409, "Another process has the name", false},
	"runner_live":            {409, "Another process has the name", true},
	"wrong_installation":     {409, "Another installation is meant", false},
	"runner_paused":          {409, "Runner is paused", true},
	"queue_draining":         {409, "Queue is draining", true},
	"processor_paused":       {409, "Processor is paused", true},
	"nothing_to_process":     {409, "Nothing to process", true},
	"busy":                   {409, "Another batch is being executed", true},
	"concurrency_limit":      {409, "Too many at once", true},
	"call_limit":             {409, "No call is left", false},
	"expired":                {410, "Expired", false},
	"cursor_expired":         {410, "Cursor has expired", false},
	"precondition_failed":    {412, "Changed meanwhile", false},
	"too_large":              {413, "Too large", false},
	"precondition_required":  {428, "If-Match is required", false},
	"fence_required":         {428, "Postern-Fence is required", false},
	"unsupported_media_type": {415, "Unsupported media type", false},
	"invalid":                {422, "Invalid request", false},
	"unknown_type":           {422, "Unknown type", false},
	"signature_required":     {422, "An envelope is required", false},
	"unknown_dependency":     {422, "Unknown dependency", false},
	"dependency_cycle":       {422, "Cycle of dependencies", false},
	"unknown_queue":          {422, "Unknown queue", false},
	"schema_mismatch":        {422, "Does not fit the schema", false},
	"address_refused":        {422, "Address is not called", false},
	"queue_full":             {429, "Queue is full", true},
	"rate_limited":           {429, "Too many requests", true},
	"too_many_streams":       {429, "Too many streams", true},
	"internal":               {500, "Internal error", false},
	"draining":               {503, "Shutting down", true},
	"database_unavailable":   {503, "Database unavailable", true},
	"disk_full":              {503, "Disk full", true},
	"commit_unknown":         {503, "Commit unknown", true},
	"overloaded":             {503, "Overloaded", true},
}

// kinds is the code of a fault whose own code is not for clients.
var kinds = map[fault.Kind]string{
	fault.Invalid: "invalid", fault.NotFound: "not_found", fault.Conflict: "wrong_state", fault.Forbidden: "forbidden",
	fault.Retry: "overloaded", fault.Internal: "internal",
}

// Problem is an RFC 9457 document. Code and retryable are stable.
type Problem struct {
	Type       string        `json:"type" doc:"urn:postern:problem: and the code"`
	Title      string        `json:"title"`
	Status     int           `json:"status"`
	Code       string        `json:"code" doc:"stable"`
	Retryable  bool          `json:"retryable" doc:"whether the same request may succeed later"`
	RetryAfter int           `json:"retry_after,omitempty" doc:"seconds"`
	RequestID  string        `json:"request_id,omitempty"`
	Detail     string        `json:"detail" doc:"names the field, the value and what would be right"`
	Errors     []fault.Field `json:"errors,omitempty" doc:"one entry per field"`
	Help       string        `json:"help" doc:"the page and the place in it that say what this code means, and what to do"`

	extra map[string]any
}

// Error returns the sentence.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes huma say application/problem+json.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders returns the headers that belong to a problem.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="postern"`)
	}
	if depth, ok := p.extra["queue_depth"]; ok {
		h.Set("Postern-Queue-Depth", fmt.Sprint(depth))
	}
	if version, ok := p.extra["version"]; ok && p.Code == "precondition_failed" {
		h.Set("ETag", fmt.Sprintf("%q", fmt.Sprint(version)))
	}
	return h
}

// MarshalJSON adds the further members.
func (p *Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	b, err := json.Marshal((*plain)(p))
	if err != nil || len(p.extra) == 0 {
		return b, err
	}
	more, err := json.Marshal(p.extra)
	if err != nil {
		return nil, err
	}
	return append(append(b[:len(b)-1], ','), more[1:]...), nil
}

// describe makes the document of a fault.
func describe(f *fault.Error, requestID string) *Problem {
	code := f.Code
	row, known := problems[code]
	if !known || f.Kind == fault.Internal {
		code = kinds[f.Kind]
		row = problems[code]
	}
	p := &Problem{
		Type:      "urn:postern:problem:" + code,
		Title:     row.title,
		Status:    row.status,
		Code:      code,
		Retryable: row.retryable,
		RequestID: requestID,
		Detail:    f.Detail,
		Errors:    f.Fields,
		Help:      help.Link(help.Problem, code),
		extra:     f.Extra,
	}
	if f.Kind == fault.Internal {
		p.Detail, p.Errors, p.extra = "something went wrong on our side; the log has it under request "+requestID, nil, nil
	}
	for i := range p.Errors {
		if p.Errors[i].Code == "" {
			p.Errors[i].Code = code
		}
	}
	if p.Retryable {
		p.RetryAfter = max(1, int((f.RetryAfter+time.Second-1)/time.Second))
	}
	return p
}

// problem turns any error into a document, and logs ours once.
func (a *API) problem(ctx context.Context, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	id := scopeOf(ctx).RequestID
	f := fault.As(err)
	if f.Kind == fault.Internal {
		if errors.Is(err, context.Canceled) {
			f = fault.New(fault.Retry, "overloaded", "the request was given up before it was answered")
		} else {
			a.Log.ErrorContext(ctx, "request failed", "request", id, "error", err)
		}
	}
	return describe(f, id)
}

// refuse answers a request that does not reach a handler.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problem(r.Context(), err)
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", "application/problem+json")
	body, err := json.Marshal(p)
	if err == nil { // a client that still sends its request knows where the answer ends
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

func notFound(r *http.Request) error {
	return fault.New(fault.NotFound, "not_found", "there is nothing at %s", fault.Clip(r.URL.Path))
}

func methodNotAllowed(r *http.Request) error {
	return fault.New(fault.Invalid, "method_not_allowed", "%s is not possible at %s", fault.Clip(r.Method), fault.Clip(r.URL.Path))
}

// statusCodes is what huma's own refusals mean.
var statusCodes = map[int]string{400: "malformed_json", 404: "not_found", 405: "method_not_allowed", 406: "not_acceptable", 408: "body_timeout",
	412: "precondition_failed", 413: "too_large", 415: "unsupported_media_type", 422: "invalid"}

// problemOf makes a document of what huma refuses: one entry per field, values clipped and never secret.
func problemOf(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
	code := statusCodes[status]
	if code == "" {
		code = "internal"
	}
	f := &fault.Error{Kind: fault.Invalid, Code: code, Detail: msg}
	if code == "internal" {
		f.Kind = fault.Internal
	}
	var said []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		field := fieldOf(err)
		f.Fields = append(f.Fields, field)
		said = append(said, sentence(field))
	}
	if len(said) > 0 {
		f.Detail = strings.Join(said[:min(4, len(said))], "; ")
	}
	id := ""
	if ctx != nil {
		id = scopeOf(ctx.Context()).RequestID
	}
	return describe(f, id)
}

func sentence(f fault.Field) string {
	if f.Pointer == "" {
		return f.Detail
	}
	return f.Pointer + ": " + f.Detail
}

// fieldOf says which field huma means, and its value where that helps.
func fieldOf(err error) fault.Field {
	d, ok := err.(huma.ErrorDetailer)
	if !ok {
		return fault.Field{Detail: fault.Clip(err.Error())}
	}
	e := d.ErrorDetail()
	f := fault.Field{Pointer: pointerOf(e.Location), Detail: e.Message}
	if name := missing.FindStringSubmatch(e.Message); name != nil { // huma points at the object that lacks it
		f.Pointer, f.Detail = f.Pointer+"/"+name[1], "is required"
	}
	if strings.HasPrefix(e.Message, "invalid date/time") { // huma shows the layout of Go's parser
		f.Detail = "want a time as RFC 3339 writes it, such as 2026-11-20T14:04:10Z"
	}
	if value, err := json.Marshal(e.Value); err == nil && e.Message == noneFits &&
		strings.HasSuffix(f.Pointer, "/exclusive") { // the only field of ours that has several forms
		f.Detail = "want " + outbox.ExclusiveForms + ", not " + fault.Clip(string(value))
		return f
	}
	switch v := e.Value.(type) {
	case string:
		if v != "" && e.Location != "body" && !secret(e.Location) {
			f.Detail += fmt.Sprintf(", not %q", fault.Clip(v))
		}
	case float64, int, int64, bool:
		if !secret(e.Location) {
			f.Detail += fmt.Sprintf(", not %v", v)
		}
	}
	return f
}

// noneFits is how huma says that a value has none of several forms.
const noneFits = "expected value to match exactly one schema but matched none"

// missing is how huma says that a property is not there.
var missing = regexp.MustCompile(`^expected required property (\S+) to be present$`)

func secret(location string) bool {
	l := strings.ToLower(location)
	return strings.Contains(l, "secret") || strings.Contains(l, "password") || strings.Contains(l, "authorization") || strings.Contains(l, "key")
}

// pointerOf turns body.items[3].tags into /items/3/tags, and query.limit into limit.
func pointerOf(location string) string {
	where, rest, _ := strings.Cut(location, ".")
	if where != "body" {
		if i := strings.IndexByte(where, '['); where[:max(i, 0)] == "body" {
			rest = location[len("body"):]
		} else if rest != "" {
			return rest
		} else {
			return where
		}
	}
	if rest == "" {
		return ""
	}
	return "/" + strings.TrimPrefix(strings.NewReplacer("[", ".", "]", "", ".", "/").Replace(strings.ReplaceAll(strings.ReplaceAll(rest, "[", "."), "]", "")), "/")
}
