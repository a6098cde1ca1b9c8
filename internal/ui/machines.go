package ui

import (
	"html/template"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// machinesPage lists the machines, or shows one with how many are in each state now.
type machinesPage struct {
	Machines []doc
	M        doc
	Drawn    template.HTML
	Counted  bool
}

// machines loads the list.
func machines(v *visit) (*screen, error) {
	a, err := v.get("/machines")
	if err != nil {
		return nil, err
	}
	return &screen{visit: v, Title: "machines", Data: machinesPage{Machines: a.items()}, file: "machines.html"}, nil
}

// machineOf loads one.
func machineOf(v *visit) (*screen, error) {
	name := v.r.PathValue("name")
	a, err := v.get("/machines")
	if err != nil {
		return nil, err
	}
	for _, m := range a.items() {
		if str(m, "name") != name {
			continue
		}
		counts, err := v.counts(name)
		if err != nil {
			return nil, err
		}
		p := machinesPage{M: m, Drawn: drawMachine(m, counts), Counted: counts != nil}
		return &screen{visit: v, Title: "machine " + name, Data: p, file: "machines.html"}, nil
	}
	return nil, fault.New(fault.NotFound, "not_found", "no machine %q", fault.Clip(name))
}

// counts is how many are in each state now; nil where they are not counted.
func (v *visit) counts(machine string) (map[string]string, error) {
	if machine != "transaction" && machine != "queue" {
		return nil, nil
	}
	a, err := v.get("/now")
	if err != nil {
		return nil, err
	}
	n := map[string]string{}
	if machine == "transaction" {
		n["WAITING"] = str(a.doc, "waiting")
		for _, state := range flying {
			n[state] = "0"
		}
		for state, count := range dig(a.doc, "in_flight") {
			n[state] = strings.TrimSpace(clip(count))
		}
		return n, nil
	}
	for state, count := range dig(a.doc, "queues") {
		n[state] = clip(count)
	}
	return n, nil
}
