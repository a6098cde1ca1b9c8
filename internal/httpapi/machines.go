package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/sequencer"
)

func (a *API) machineRoutes() {
	const tag = "service"
	get(a, tag, "/machines", "list-machines", "The state machines", a.listMachines)
	op := operation(tag, http.MethodGet, "/machines/{name}", "get-machine", "One state machine", nil)
	machineAnswers(&op, a.huma.OpenAPI().Components.Schemas)
	register(a, op, a.getMachine)
}

// machineView is one state machine, as the code has it.
type machineView struct {
	Name     string      `json:"name"`
	Follows  string      `json:"follows" doc:"the published design that it is taken from"`
	Initial  string      `json:"initial"`
	Terminal []string    `json:"terminal"`
	States   []stateView `json:"states"`
	Events   []string    `json:"events"`
	Rules    []ruleView  `json:"rules" doc:"the first that matches wins"`
}

type stateView struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
}

type ruleView struct {
	From string   `json:"from" doc:"empty: there is nothing yet"`
	On   string   `json:"on"`
	When string   `json:"when"`
	To   string   `json:"to"`
	Do   []string `json:"do"`
}

type machinesOutput struct {
	Body struct {
		Items []machineView `json:"items"`
		Next  *string       `json:"next"`
	}
}

// tables lists the machines of all systems.
func tables() []machine.Table {
	return slices.Concat(sequencer.Tables(), leader.Tables(), processor.Tables(), flow.Tables(), message.Tables(),
		coord.Tables())
}

func (a *API) listMachines(context.Context, *struct{}) (*machinesOutput, error) {
	out := &machinesOutput{}
	for _, t := range tables() {
		out.Body.Items = append(out.Body.Items, viewMachine(t))
	}
	return out, nil
}

const mermaidType = "text/vnd.mermaid"

type machineInput struct {
	Name   name   `path:"name"`
	Accept string `header:"Accept"`
}

// machineAnswers says in which forms a machine is shown.
func machineAnswers(op *huma.Operation, r huma.Registry) {
	op.Responses = map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK),
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemaOf[machineView](r)},
			mermaidType:        {Schema: &huma.Schema{Type: huma.TypeString}}}}}
}

// getMachine shows a machine as its table, or as a diagram to who asks for that first.
func (a *API) getMachine(_ context.Context, in *machineInput) (*huma.StreamResponse, error) {
	for _, t := range tables() {
		if t.Name != string(in.Name) {
			continue
		}
		kind, body := "application/json", []byte(nil)
		if strings.HasPrefix(in.Accept, mermaidType) {
			kind, body = mermaidType, []byte(machine.Mermaid(t))
		} else {
			body, _ = json.Marshal(viewMachine(t)) // strings and lists of them
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			ctx.SetHeader("Content-Type", kind)
			_, _ = ctx.BodyWriter().Write(body)
		}}, nil
	}
	return nil, fault.New(fault.NotFound, "not_found", "no machine %q", fault.Clip(string(in.Name)))
}

func viewMachine(t machine.Table) machineView {
	v := machineView{
		Name:     t.Name,
		Follows:  t.Follows,
		Initial:  t.Initial,
		Terminal: list(t.Terminal),
		Events:   list(t.Events),
	}
	for _, s := range t.States() {
		v.States = append(v.States, stateView{s, cmp.Or(sequencer.Meanings[t.Name+"."+s], leader.Meanings[t.Name+"."+s],
			processor.Meanings[t.Name+"."+s], flow.Meanings[t.Name+"."+s],
			message.Meanings[t.Name+"."+s], coord.Meanings[t.Name+"."+s])})
	}
	for _, r := range t.Rules {
		v.Rules = append(v.Rules, ruleView{r.From, r.On, r.When, r.To, list(r.Do)})
	}
	return v
}

// list makes nil an empty list, since JSON tells them apart.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
