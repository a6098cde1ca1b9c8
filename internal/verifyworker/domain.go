package verifyworker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// DomainOptions say how the service of a domain is checked.
type DomainOptions struct {
	URL     string          // of the service
	Party   string          // name@node, whose the intent is
	Nodes   []string        // of the domain; nil: that of the party
	Data    json.RawMessage // of an intent that does well; nil: {}
	Types   []string        // of the public transactions; nil: any
	Calls   []string        // look, settled, height: what it answers besides
	Timeout time.Duration   // of a call; 0: 10 s
}

// domainRun is one run.
type domainRun struct {
	o      DomainOptions
	client *remote.Client
	image  *coord.Domain
	id     string
	made   coord.Assembled
	kept   json.RawMessage // the answer of /assemble
	given  map[string][]map[string]any
	types  []string
}

// domainCheck is one promise of the contract of the service of a domain.
type domainCheck struct {
	name, paragraph, cost string
	needs                 bool // it stands on what was assembled
	run                   func(*domainRun, context.Context) finding
}

var domainChecks = []domainCheck{
	{"assemble", "assemble", "No intent gets further than Assembling: each ends in errors.", false,
		(*domainRun).assembles},
	{"same key", "keys", "An answer that was lost is asked for again: what was signed, and what is dispatched, differ.",
		true, (*domainRun).again},
	{"sign", "sign", "Intents stay without the signatures of their own party, and are assembled again and again.", true,
		(*domainRun).signs},
	{"endorse", "endorse", "Intents run into state_timeout, and are assembled again until their errors are too many.",
		true, (*domainRun).endorses},
	{"prepare", "prepare", "What is endorsed is never dispatched.", true, (*domainRun).prepares},
	{"look", "look", "An intent whose node is lost waits for an operator, or ends as a failure that the ledger has.",
		false, (*domainRun).looks},
	{"height", "height", "The nodes do not agree on who coordinates.", false, (*domainRun).height},
	{"garbage", "errors", "A call that was cut off is taken for one that does well.", false, (*domainRun).garbage},
	{"unknown path", "errors", "A call of a later version is taken for one of this.", false, (*domainRun).unknown},
}

// RunDomain checks the service of a domain. An error means that there is no report.
func RunDomain(ctx context.Context, o DomainOptions) (Report, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Report{}, fault.New(fault.Invalid, "bad_service_url",
			"the URL of the service is %q: want http(s)://host[:port][/path]", fault.Clip(o.URL))
	}
	if len(o.Data) == 0 {
		o.Data = json.RawMessage(`{}`)
	}
	at := strings.LastIndexByte(o.Party, '@')
	switch {
	case at < 1 || at == len(o.Party)-1:
		return Report{}, fault.New(fault.Invalid, "bad_party", "the party is %q: want name@node", fault.Clip(o.Party))
	case !json.Valid(o.Data):
		return Report{}, fault.New(fault.Invalid, "bad_data", "the data is no JSON: want that of an intent")
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{o.Party[at+1:]}
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	o.URL = strings.TrimRight(o.URL, "/")
	r := &domainRun{o: o, id: uuid.NewString(), given: map[string][]map[string]any{}, types: o.Types,
		image: coord.New("verify", o.Party[at+1:], coord.Defaults(o.Nodes...), 1)}
	r.client = remote.New(remote.Config{UserAgent: "postern-verify-domain",
		AllowCIDR: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	defer r.client.Close()
	if reply := r.call(ctx, "assemble", r.id+".reach", []byte("{}")); reply.Body == nil && reply.Away {
		return Report{}, fault.New(fault.Retry, "worker_unreachable", "%s cannot be called: %s", u.Redacted(),
			reply.Why)
	}
	report := Report{URL: u.Redacted(), Type: strings.Join(o.Types, ","), OK: true}
	for _, c := range domainChecks {
		f := notRun("nothing was assembled")
		if !c.needs || r.kept != nil {
			f = c.run(r, ctx)
		}
		if ctx.Err() != nil {
			return Report{}, ctx.Err()
		}
		done := Check{Name: c.name, Paragraph: c.paragraph, State: f.state, Found: f.found}
		if f.state == Failed {
			done.Cost, report.OK = c.cost, false
			report.Failed++
		}
		report.Checks = append(report.Checks, done)
	}
	return report, nil
}

func (r *domainRun) call(ctx context.Context, kind, key string, body json.RawMessage) remote.DomainReply {
	return r.client.Domain(ctx, remote.DomainCall{URL: r.o.URL, Kind: kind, Key: key, Body: body, Timeout: r.o.Timeout})
}

// ask makes a call, and reads its answer as Postern does.
func (r *domainRun) ask(ctx context.Context, kind, key string, q map[string]any) (coord.Answer, json.RawMessage,
	json.RawMessage, error) {
	q["key"], q["domain"] = key, r.image.Name
	body, err := json.Marshal(q)
	if err != nil {
		return coord.Answer{}, nil, nil, err
	}
	reply := r.call(ctx, kind, key, body)
	if reply.Body == nil {
		return coord.Answer{}, nil, nil, fmt.Errorf("%s", reply.Why)
	}
	types := r.types
	if kind == "prepare" && len(types) == 0 {
		var p struct{ Type string }
		_ = json.Unmarshal(reply.Body, &p)
		types = []string{p.Type}
	}
	a, kept, err := r.image.ReadAnswer(&coord.Call{Key: key, Kind: kind, ID: r.id}, reply.Body, types)
	return a, kept, reply.Body, err
}

func (r *domainRun) assembly() map[string]any {
	return map[string]any{
		"intent":  map[string]any{"id": r.id, "party": r.o.Party, "data": r.o.Data},
		"height":  1,
		"pending": map[string]any{"outputs": []any{}, "spent": []string{}},
	}
}

func (r *domainRun) assembles(ctx context.Context) finding {
	a, kept, _, err := r.ask(ctx, "assemble", r.id+".assemble", r.assembly())
	switch {
	case err != nil:
		return failed("POST /assemble: %s", err)
	case a.Result != coord.OK:
		return failed("it answers %s (%s): give it the data of an intent that does well (--data)", a.Result, a.Reason)
	}
	r.made, r.kept = a.Assembled, kept
	return ok("it makes %s of %s, and wants %s", fault.Many(len(a.Assembled.Outputs), "output"),
		fault.Many(len(a.Assembled.Inputs), "input"), fault.Many(len(a.Assembled.Plan), "attestation"))
}

func (r *domainRun) again(ctx context.Context) finding {
	_, kept, _, err := r.ask(ctx, "assemble", r.id+".assemble", r.assembly())
	switch {
	case err != nil:
		return failed("the second call of one key: %s", err)
	case coord.HashOf(kept) != coord.HashOf(r.kept):
		return failed("one key has two answers: %.200s and %.200s", r.kept, kept)
	}
	return ok("the same key has the same answer")
}

// ticket is what parties are shown of what was assembled.
func (r *domainRun) ticket() map[string]any {
	var made map[string]json.RawMessage
	_ = json.Unmarshal(r.kept, &made)
	return map[string]any{"hash": r.made.Hash, "assembled": made["assembled"], "inputs": made["inputs"],
		"outputs": made["outputs"]}
}

func (r *domainRun) signs(ctx context.Context) finding { return r.attest(ctx, "sign") }

func (r *domainRun) endorses(ctx context.Context) finding { return r.attest(ctx, "endorse") }

func (r *domainRun) attest(ctx context.Context, typ string) finding {
	n := 0
	for _, at := range r.made.Plan {
		for _, party := range at.Parties {
			if at.Type != typ {
				continue
			}
			n++
			key := r.id + "." + typ + "." + at.Name + "." + party
			q := r.ticket()
			q["name"], q["party"] = at.Name, party
			if typ == "endorse" {
				q["signatures"] = r.given["sign"]
			}
			a, kept, first, err := r.ask(ctx, typ, key, q)
			switch {
			case err != nil:
				return failed("POST /%s for %s: %s", typ, party, err)
			case a.Result != coord.OK:
				return failed("it refuses for %s: %s", party, a.Reason)
			}
			_, _, second, err := r.ask(ctx, typ, key, q)
			if err != nil || !equal(first, second) {
				return failed("one key has two answers: %.200s and %.200s (%v)", first, second, err)
			}
			r.given[typ] = append(r.given[typ], map[string]any{"name": at.Name, "party": party, "data": kept})
		}
	}
	if n == 0 {
		return notOffered("nothing is to be done by /%s of what was assembled", typ)
	}
	return ok("%s", fault.Many(n, "answer"))
}

func equal(a, b json.RawMessage) bool {
	x, _ := json.Marshal(outbox.Canonical(a))
	y, _ := json.Marshal(outbox.Canonical(b))
	return string(x) == string(y)
}

func (r *domainRun) prepares(ctx context.Context) finding {
	q := r.ticket()
	q["intent"] = map[string]any{"id": r.id, "party": r.o.Party}
	q["signatures"], q["endorsements"] = r.given["sign"], r.given["endorse"]
	a, kept, first, err := r.ask(ctx, "prepare", r.id+".prepare", q)
	if err != nil || a.Result != coord.OK {
		return failed("POST /prepare: %v %s", err, a.Reason)
	}
	_, _, second, err := r.ask(ctx, "prepare", r.id+".prepare", q)
	if err != nil || !equal(first, second) {
		return failed("one key has two answers: %.200s and %.200s (%v)", first, second, err)
	}
	return ok("%.200s", kept)
}

// offers says whether the service is said to answer an optional call.
func (r *domainRun) offers(call string) bool {
	for _, c := range r.o.Calls {
		if c == call {
			return true
		}
	}
	return false
}

func (r *domainRun) looks(ctx context.Context) finding {
	if !r.offers("look") {
		return notOffered("without it an intent whose node is lost waits for an operator (service_calls, --calls)")
	}
	a, _, _, err := r.ask(ctx, "look", r.id+".look", map[string]any{"intents": []string{r.id}})
	switch {
	case err != nil:
		return failed("POST /look: %s", err)
	case a.Result != coord.Unknown:
		return failed("it says %s of an intent that was never dispatched", a.Result)
	}
	return ok("an intent that was never dispatched is unknown")
}

func (r *domainRun) height(ctx context.Context) finding {
	if !r.offers("height") {
		return notOffered("the height is put by PUT /domains/NAME/height, or is 0")
	}
	reply := r.call(ctx, "height", "height", nil)
	var answer struct{ Height json.Number }
	if reply.Body == nil || json.Unmarshal(reply.Body, &answer) != nil {
		return failed("GET /height: %s %.100s", reply.Why, reply.Body)
	}
	if h, err := answer.Height.Int64(); err != nil || h < 0 {
		return failed("height %q: want digits", fault.Clip(answer.Height.String()))
	}
	return ok("%s", answer.Height)
}

// plain posts what Postern never does, and returns the status.
func (r *domainRun) plain(ctx context.Context, path, body string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.o.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: r.o.Timeout, Transport: &http.Transport{Proxy: nil}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
	return res.StatusCode, string(text)
}

func (r *domainRun) garbage(ctx context.Context) finding {
	status, text := r.plain(ctx, "/assemble", `{"key": "`)
	if status == http.StatusOK && strings.Contains(text, `"OK"`) {
		return failed("a body that is cut off is answered %d %.200s", status, text)
	}
	return ok("a body that is cut off does not do well: %d", status)
}

func (r *domainRun) unknown(ctx context.Context) finding {
	status, text := r.plain(ctx, "/no-such-call", `{}`)
	if status/100 == 2 {
		return failed("a path that there is not is answered %d %.200s", status, text)
	}
	return ok("a path that there is not is answered %d", status)
}
