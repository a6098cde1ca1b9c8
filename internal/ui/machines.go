package ui

import (
	"html/template"

	"github.com/postern-dev/postern/internal/fault"
)

// machinesPage lists the machines, or shows one with how many are in each state now.
type machinesPage struct {
	Machines []doc
	M        doc
	Drawn    template.HTML
	States   doc // as of when, and of how many
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
		now, err := v.get(pathTo("machines", name, "states"))
		if err != nil {
			return nil, err
		}
		p := machinesPage{M: m, Drawn: drawMachine(m, dig(now.doc, "states")), States: now.doc}
		return &screen{
			visit: v,
			Title: "machine " + name,
			Data:  p,
			Live:  v.At("machines", name) + "?live=1",
			file:  "machines.html",
		}, nil
	}
	return nil, fault.New(fault.NotFound, "not_found", "no machine %q", fault.Clip(name))
}
