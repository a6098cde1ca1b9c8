package scenario

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgevents "github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
)

// outside is what a leader has around it: a log of events over HTTP, whose cursors are inclusive, and tools.
type outside struct {
	mu     sync.Mutex
	server *httptest.Server
	log    []json.RawMessage
	status int                 // that the log answers with; 0: pages
	tools  map[string][]string // answers to come; the last one stays
	input  string              // what inputs are of
	signed map[string]answered // what signed tools have answered, by tool and token
	called []string
}

type answered struct{ input, text string }

func (s *story) outside() *outside {
	if s.around == nil {
		o := &outside{tools: map[string][]string{}, signed: map[string]answered{}}
		mux := http.NewServeMux()
		mux.HandleFunc("GET /log", o.page)
		mux.HandleFunc("POST /tools/{fqn}/invoke", o.invoke)
		mux.HandleFunc("GET /inputs/{id}", func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("id") == "none" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			fmt.Fprintf(w, `{"of": %q}`, r.PathValue("id")+o.input)
		})
		o.server = httptest.NewServer(mux)
		s.t.Cleanup(o.server.Close)
		s.around = o
		s.short = append(s.short, o.server.URL, "OUTSIDE")
	}
	return s.around
}

func (o *outside) page(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status != 0 {
		w.WriteHeader(o.status)
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	to := min(from+limit, len(o.log))
	_ = json.NewEncoder(w).Encode(map[string]any{"events": append([]json.RawMessage{}, o.log[from:to]...), "next_cursor": max(to-1, 0), "has_more": to < len(o.log)})
}

// toolAnswers are what a tool of a story can say.
var toolAnswers = map[string]func(arg string) (int, string){
	"ok":   func(string) (int, string) { return 200, `{"ok": {"n": 1}}` },
	"err":  func(string) (int, string) { return 200, `{"err_reason": {"why": "says the tool"}}` },
	"bad":  func(string) (int, string) { return 200, `{"ok": {"n": "one"}}` },
	"two":  func(string) (int, string) { return 200, `{"ok": {"n": 1}, "err_reason": {}}` },
	"http": func(code string) (int, string) { n, _ := strconv.Atoi(code); return n, "" },
	"page": func(code string) (int, string) {
		n, _ := strconv.Atoi(code)
		return n, "<!DOCTYPE html><html>nginx</html>"
	},
	"says": func(text string) (int, string) {
		code, word, _ := strings.Cut(text, ":")
		n, _ := strconv.Atoi(code)
		return n, fmt.Sprintf(`{"error": %q, "details": ""}`, word)
	},
}

func (o *outside) invoke(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	fqn := r.PathValue("fqn")
	list := o.tools[fqn]
	if list[0] == "signed" {
		o.invokeSigned(w, r, fqn, body)
		return
	}
	o.called = append(o.called, fqn+" "+strings.TrimSpace(string(body)))
	name, arg, _ := strings.Cut(list[0], ":")
	if len(list) > 1 {
		o.tools[fqn] = list[1:]
	}
	if name == "lost" {
		panic(http.ErrAbortHandler)
	}
	status, text := toolAnswers[name](arg)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// invokeSigned is a tool that wants its calls signed: it answers an exact repeat as it did before, and refuses the same
// token with another input.
func (o *outside) invokeSigned(w http.ResponseWriter, r *http.Request, fqn string, body []byte) {
	status, text, note := http.StatusOK, `{"ok": {"n": 1}}`, "signed"
	key := fqn + " " + r.Header.Get("Idempotency-Key")
	before, again := o.signed[key]
	switch err := remote.Verify(r, body, "http://"+r.Host+r.URL.Path, signingKey.Public().(ed25519.PublicKey), time.Now()); {
	case err != nil:
		status, text, note = http.StatusUnauthorized, `{"error": "bad_signature", "details": ""}`, err.Error()
	case again && before.input != string(body):
		status, text = http.StatusConflict, `{"error": "key_reused", "details": ""}`
		note = "the same token with another input"
	case again:
		text, note = before.text, "signed, again"
	default:
		o.signed[key] = answered{string(body), text}
	}
	o.called = append(o.called, fqn+" "+string(body)+" ("+note+")")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// source: source NAME [kind=http_json] [buffer=] [max_retries=3] [stale=] [input=] [page=50] [on_undecodable=]. It
// reads the story's log, or is pushed to.
func source(s *story, c *command, _ say) (err error) {
	v := leader.Source{Name: c.word(), Kind: c.option("kind", "http_json"), Map: leader.SourceMap{FQN: "/tool", Input: c.option("input", "")}, OnUndecodable: c.option("on_undecodable", "")}
	if v.Kind == "http_json" {
		v.URL = s.outside().server.URL + "/log"
	}
	v.Map.Input = strings.ReplaceAll(v.Map.Input, "OUTSIDE", s.outside().server.URL)
	for name, into := range map[string]*int{"buffer": &v.Buffer, "max_retries": &v.MaxRetries, "page": &v.PageSize} {
		*into = map[string]int{"max_retries": leader.DefaultMaxRetries}[name]
		if text := c.option(name, ""); text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return err
			}
		}
	}
	if text := c.option("stale", ""); text != "" {
		if v.StaleAfter, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	_, err = s.store.Events.PutSource(s.ctx, s.by, v.WithDefaults(), 0)
	return err
}

// feed: feed ID... [tool=xyz.labs.add@1] [json=]: events in the log. feed [status=503]: what it answers with instead;
// 0: pages. feed [input=TEXT]: from then on, inputs that the workflow is asked for end with that.
func feed(s *story, c *command, _ say) (err error) {
	o := s.outside()
	o.mu.Lock()
	defer o.mu.Unlock()
	if text := c.option("status", ""); text != "" {
		o.status, err = strconv.Atoi(text)
		return err
	}
	if text := c.option("input", ""); text != "" {
		o.input = text
		return nil
	}
	fqn, extra := c.option("tool", "xyz.labs.add@1"), c.option("json", "")
	if extra != "" {
		extra = "," + extra
	}
	for _, id := range c.rest() {
		o.log = append(o.log, json.RawMessage(fmt.Sprintf(`{"id":%q,"tool":%q%s}`, id, fqn, extra)))
	}
	return nil
}

// tool: tool FQN ANSWER...: registers it, if it is new; the last answer counts from then on. With the answer "signed"
// its calls are signed. tool FQN removed
func tool(s *story, c *command, _ say) error {
	o, fqn := s.outside(), c.word()
	list := c.rest()
	if list[0] == "removed" {
		return s.store.Events.RemoveTool(s.ctx, s.by, fqn)
	}
	for _, a := range list {
		if name, _, _ := strings.Cut(a, ":"); toolAnswers[name] == nil && name != "lost" && name != "signed" {
			return fmt.Errorf("no tool answers %q", a)
		}
	}
	o.mu.Lock()
	known := o.tools[fqn] != nil
	o.tools[fqn] = list
	o.mu.Unlock()
	if known {
		return nil
	}
	how := ""
	if list[0] == "signed" {
		how = leader.SignEd25519
	}
	d, err := leader.Meta{FQN: fqn, Sign: how, URL: o.server.URL + "/tools/" + fqn, Timeout: "5s",
		InputSchema: json.RawMessage(`{"type": "object", "properties": {"n": {"type": "integer"}}}`),
		OutputSchema: json.RawMessage(`{"oneOf": [{"type": "object", "required": ["ok"], "properties": {"ok": {"type": "object", "properties": {"n": {"type": "integer"}}}}},
			{"type": "object", "required": ["err_reason"], "properties": {"err_reason": {"type": "object"}}}]}`)}.Definition()
	if err != nil {
		return err
	}
	_, err = s.store.Events.PutTool(s.ctx, s.by, d, pgevents.ToolSettings{TTL: time.Hour}, 0)
	return err
}

// listen: listen [NODE]. The node asks each source that is due for one page.
func listen(s *story, c *command, say say) error {
	n, err := s.node(nodeName(c))
	if err != nil {
		return err
	}
	_, err = n.events.ListenOnce(s.ctx)
	return err
}

// lead: lead [NODE]. The node does for events what can be done without calling anybody.
func lead(s *story, c *command, _ say) error {
	n, err := s.node(nodeName(c))
	if err != nil {
		return err
	}
	_, err = n.events.LeadOnce(s.ctx)
	return err
}

// learn makes the events of the story known by their names.
func (s *story) learn() error {
	var id, identity string
	return s.each(`SELECT event_id::text, identity FROM postern.event ORDER BY event_id`, nil, []any{&id, &identity}, func() error {
		if _, ok := s.events[identity]; !ok {
			if old, ok := strings.CutPrefix(identity, "redrive:"); ok {
				identity = s.shorten(old) + "-again"
			}
			s.events[identity] = id
			s.short = append(s.short, id, identity)
		}
		return nil
	})
}

// events: events. One line an event: its name, status, and what is known of it.
func events(s *story, _ *command, say say) error {
	if err := s.learn(); err != nil {
		return err
	}
	var id, status, outcome, code, why string
	var retried int
	var next *time.Time
	return s.each(`SELECT event_id::text, status, retried, outcome, code, error, not_before FROM postern.event ORDER BY created_at, identity`, nil,
		[]any{&id, &status, &retried, &outcome, &code, &why, &next}, func() error {
			say("%s %s%s%s", id, status, fields("retried", retried, "outcome", outcome, "code", code, "next", s.moment(next)), because(why))
			return nil
		})
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// history: history EVENT
func history(s *story, c *command, say say) error {
	id, err := s.event(c.word())
	if err != nil {
		return err
	}
	list, err := s.store.Events.EventMoves(s.ctx, s.by.Context, id)
	for _, m := range list {
		if m.Machine == "event" {
			say("%s: %s -> %s%s%s", m.Event, m.From, m.To, fields("fence", m.Fence, "by", m.By), because(m.Detail))
		}
	}
	return err
}

func (s *story) event(name string) (uuid.UUID, error) {
	if err := s.learn(); err != nil {
		return uuid.UUID{}, err
	}
	id, err := uuid.Parse(s.events[name])
	if err != nil {
		return id, fmt.Errorf("there is no event %q", name)
	}
	return id, nil
}

// told: told. The results that workflows were sent, one line an event.
func told(s *story, _ *command, say say) error {
	if err := s.learn(); err != nil {
		return err
	}
	var data []byte
	var state string
	return s.each(`SELECT t.data, x.state FROM postern.event e JOIN postern.transactions x ON x.id::text = e.result_id
		JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (e.result_queue, e.result_seq, e.result_day) ORDER BY e.created_at, e.identity`, nil,
		[]any{&data, &state}, func() error {
			var b pgevents.ResultBody
			if err := json.Unmarshal(data, &b); err != nil {
				return err
			}
			line := fmt.Sprintf("%s %s", b.Event, b.Outcome)
			if b.Variant != nil {
				line += " " + string(b.Output)
			}
			if b.Error != nil {
				line += fmt.Sprintf(" %s: %s", b.Error.Code, b.Error.Message)
			}
			say("%s %s", line, state)
			return nil
		})
}

// toolCalls: toolcalls. The inputs with which tools were called since this was asked last.
func toolCalls(s *story, _ *command, say say) error {
	o := s.outside()
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.called) // they are called side by side
	for _, line := range o.called {
		say("%s", line)
	}
	o.called = nil
	return nil
}

// whyEvent: whyevent EVENT
func whyEvent(s *story, c *command, say say) error {
	id, err := s.event(c.word())
	if err != nil {
		return err
	}
	w, err := s.store.Events.WhyEvent(s.ctx, s.by.Context, id)
	if err != nil {
		return err
	}
	var kinds []string
	for _, b := range w.Blockers {
		kinds = append(kinds, b.Kind)
	}
	say("%s %s", w.State, strings.Join(kinds, " "))
	return nil
}

// redriveEvent: redrive-event EVENT
func redriveEvent(s *story, c *command, _ say) error {
	id, err := s.event(c.word())
	if err != nil {
		return err
	}
	_, err = s.store.Events.RedriveEvent(s.ctx, s.by, id)
	return err
}

// redriveResult: redrive-result EVENT [data=]. The transaction that was to tell its workflow goes out again.
func redriveResult(s *story, c *command, _ say) error {
	return s.redriveOf(c, func(e *pgevents.Event) string { return e.Result })
}

// redriveTool: redrive-tool EVENT. The transaction that called its tool, likewise.
func redriveTool(s *story, c *command, _ say) error {
	return s.redriveOf(c, func(e *pgevents.Event) string { return e.Tool })
}

func (s *story) redriveOf(c *command, which func(*pgevents.Event) string) error {
	id, err := s.event(c.word())
	if err != nil {
		return err
	}
	e, err := s.store.Events.Event(s.ctx, s.by.Context, id)
	if err != nil {
		return err
	}
	tx, err := outbox.ParseID(which(e))
	if err != nil {
		return err
	}
	_, err = s.store.Redrive(s.ctx, s.by, tx, pg.Redrive{Data: json.RawMessage(c.option("data", ""))})
	return err
}
