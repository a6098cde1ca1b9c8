package scenario

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
)

// listen has the API of the story, which is the real one, behind a listener, and returns its address.
func (s *story) listen() string {
	if s.api == nil {
		tools := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		s.t.Cleanup(tools.Close)
		s.api = httptest.NewServer(httpapi.New(httpapi.Config{Store: s.store, Ingester: pg.NewIngester(s.store.Store),
			Tools: tools, Log: slog.New(slog.DiscardHandler), Auth: "none"}).Handler())
		s.t.Cleanup(s.api.Close)
	}
	return s.api.URL
}

// ask sends a request to the API of the story, and returns the status and the body that it answers.
func (s *story) ask(method, path string, body any) (status int, answer map[string]any, err error) {
	at := s.listen()
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(s.ctx, method, at+path, strings.NewReader(string(text)))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.api.Client().Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	return res.StatusCode, answer, err
}

// judged shows what the API refuses: the status, the places, and why.
func judged(status int, answer map[string]any, say say) {
	var at []string
	list, _ := answer["errors"].([]any)
	for _, e := range list {
		if f, ok := e.(map[string]any); ok {
			at = append(at, fmt.Sprint(f["pointer"]))
		}
	}
	say("%d %s %s", status, strings.Join(at, " "), answer["detail"])
}

// register: register FQN. PUT /tools/FQN: the name that it is registered under, or why it is not.
func register(s *story, c *command, say say) error {
	status, answer, err := s.ask(http.MethodPut, "/tools/"+c.word(),
		map[string]any{"url": "http://127.0.0.1:1", "check_every": "0s",
			"input_schema": true, "output_schema": map[string]any{"oneOf": []any{true}}})
	switch {
	case err != nil:
		return err
	case status >= 300:
		judged(status, answer, say)
	default:
		say("%d %s", status, answer["fqn"])
	}
	return nil
}

// walk: walk VERTEX... EDGE... [group=NAME:VERTEX,VERTEX] [given=VERTEX.PORT] [output=VERTEX.VARIANT.PORT]
// [tool=com.labs.add@1]. POST /walks:validate of a document. A vertex is written NAME, or NAME+PORT,PORT with the ports
// whose values the start of the walk brings; an edge VERTEX.VARIANT.PORT>VERTEX.PORT, with its kind behind a blank.
// given: a default value.
func walk(s *story, c *command, say say) error {
	fqn := c.option("tool", "com.labs.add@1")
	doc := leader.Walk{Vertices: []leader.Vertex{}, Edges: []leader.Edge{}}
	for _, word := range c.rest() {
		if !strings.Contains(word, ">") {
			name, ports, _ := strings.Cut(word, "+")
			v := leader.Vertex{Name: name, Kind: leader.VertexKind{Variant: "off_chain", ToolFQN: fqn}}
			for _, p := range strings.FieldsFunc(ports, func(r rune) bool { return r == ',' }) {
				v.EntryPorts = append(v.EntryPorts, leader.Port{Name: p})
			}
			doc.Vertices = append(doc.Vertices, v)
			continue
		}
		word, kind, _ := strings.Cut(word, " ")
		from, to, _ := strings.Cut(word, ">")
		in, err := places(to, 2)
		out, err2 := fromPort(from)
		if err != nil || err2 != nil {
			return fmt.Errorf("%s is no edge: want VERTEX.VARIANT.PORT>VERTEX.PORT", word)
		}
		doc.Edges = append(doc.Edges, leader.Edge{Kind: leader.EdgeKind(kind), From: out,
			To: leader.ToPort{Vertex: in[0], Port: in[1]}})
	}
	if text := c.option("group", ""); text != "" {
		name, of, _ := strings.Cut(text, ":")
		doc.EntryGroups = []leader.EntryGroup{{Name: name, Vertices: strings.Split(of, ",")}}
	}
	if text := c.option("given", ""); text != "" {
		at, err := places(text, 2)
		if err != nil {
			return err
		}
		doc.DefaultValues = []leader.DefaultValue{{Vertex: at[0], Port: at[1], Value: json.RawMessage("1")}}
	}
	if text := c.option("output", ""); text != "" {
		out, err := fromPort(text)
		if err != nil {
			return err
		}
		doc.Outputs = []leader.FromPort{out}
	}
	status, answer, err := s.ask(http.MethodPost, "/walks:validate", doc)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		judged(status, answer, say)
	default:
		say("%d valid, begins as %v", status, answer["entry_groups"])
	}
	return nil
}

func fromPort(text string) (p leader.FromPort, err error) {
	at, err := places(text, 3)
	if err == nil {
		p = leader.FromPort{Vertex: at[0], Variant: at[1], Port: at[2]}
	}
	return p, err
}

// places takes a dotted name of n parts apart.
func places(text string, n int) ([]string, error) {
	list := strings.Split(text, ".")
	if len(list) != n {
		return nil, fmt.Errorf("%q: want %d names with dots between them", text, n)
	}
	return list, nil
}
