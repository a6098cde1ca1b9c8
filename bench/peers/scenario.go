package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What a scenario measures.
const (
	fifo = "fifo"         // rows lie there, and a worker begins
	e2e  = "e2e"          // 64 clients insert one at a time while a worker works
	idle = "idle-latency" // one insert a second; the time until its handler begins
)

// scenario is a kind and its size: keys x depth rows.
type scenario struct {
	name, kind  string
	keys, depth int
}

var sized = regexp.MustCompile(`^(fifo|e2e)-([1-9]\d{0,6})x([1-9]\d{0,5})$`)

// parseScenarios reads names by commas.
func parseScenarios(names string) ([]scenario, error) {
	var list []scenario
	for name := range strings.SplitSeq(names, ",") {
		s := scenario{name: name, kind: name}
		switch m := sized.FindStringSubmatch(name); {
		case m != nil:
			s.kind = m[1]
			s.keys, _ = strconv.Atoi(m[2])
			s.depth, _ = strconv.Atoi(m[3])
		case name == e2e:
			s.keys, s.depth = 1000, 10
		case name == idle:
			s.keys, s.depth = 1, 30 // seconds
		default:
			return nil, fmt.Errorf("there is no scenario %q: want fifo-KEYSxDEPTH, e2e, e2e-KEYSxDEPTH or idle-latency", name)
		}
		list = append(list, s)
	}
	return list, nil
}

func (s scenario) total() int { return s.keys * s.depth }
