package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Limits of a flow.
const (
	MaxJobs  = 1000 // of one flow, jobs and prerequisites together: they are posted in one commit
	MaxNeeds = 64   // jobs and prerequisites that one job waits for
	MaxName  = 200  // bytes, of a prerequisite
)

// CheckGraph refuses jobs that cannot make a flow: each has a ref, no two the same, and waits only for others of the
// flow, never for itself in a circle. known are the refs of jobs that the flow has already, and prerequisites is how
// many those have. at is where the jobs stand in the request.
func CheckGraph(at string, jobs []Spec, known map[int64]bool, prerequisites int) error {
	of := map[int64]int{}
	count := len(known) + prerequisites
	for i := range jobs {
		here := fmt.Sprintf("%s/%d", at, i)
		j := &jobs[i]
		if j.Ref == nil {
			return fault.At(here+"/ref", "ref is missing: each job of a flow has one, by which others name it")
		}
		if _, twice := of[*j.Ref]; twice || known[*j.Ref] {
			return fault.At(here+"/ref", "ref %d names two jobs of this flow: give each its own", *j.Ref)
		}
		of[*j.Ref] = i
		count += 1 + len(j.Prerequisites)
		if err := j.checkNeeds(here); err != nil {
			return err
		}
	}
	if count > MaxJobs {
		return fault.At(at, "the flow has %d jobs and prerequisites: want at most %d together", count, MaxJobs)
	}
	for i := range jobs {
		for k, ref := range jobs[i].Dependends {
			if _, ok := of[ref]; !ok && !known[ref] {
				return fault.New(fault.Invalid, "unknown_dependency",
					"job %d depends on job %d, which the flow does not have", *jobs[i].Ref, ref).
					About(fmt.Sprintf("%s/%d/dependends/%d", at, i, k))
			}
		}
	}
	if circle := cycle(jobs, of); circle != nil {
		names := make([]string, len(circle))
		for i, ref := range circle {
			names[i] = fmt.Sprint(ref)
		}
		return fault.New(fault.Invalid, "dependency_cycle", "jobs wait for each other in a circle, so that none of "+
			"them could ever start: %s", fault.Clip(strings.Join(names, " -> "))).
			About(fmt.Sprintf("%s/%d/dependends", at, of[circle[0]])).With("cycle", circle)
	}
	return nil
}

// checkNeeds refuses what one job cannot wait for.
func (s *Spec) checkNeeds(at string) error {
	if n := len(s.Dependends) + len(s.Prerequisites); n > MaxNeeds {
		return fault.At(at+"/dependends", "dependends and prerequisites are %d together: want at most %d", n,
			MaxNeeds)
	}
	for k, ref := range s.Dependends {
		here := fmt.Sprintf("%s/dependends/%d", at, k)
		switch {
		case s.Ref != nil && ref == *s.Ref:
			return fault.New(fault.Invalid, "dependency_cycle", "job %d depends on itself: %d -> %d", ref, ref, ref).
				About(here).With("cycle", []int64{ref, ref})
		case slices.Contains(s.Dependends[:k], ref):
			return fault.At(here, "job %d is named twice", ref)
		}
	}
	for k, name := range s.Prerequisites {
		here := fmt.Sprintf("%s/prerequisites/%d", at, k)
		switch {
		case name == "" || len(name) > MaxName || strings.ContainsRune(name, 0):
			return fault.At(here, "prerequisite %q: want a name of 1 to %d bytes", fault.Clip(name), MaxName)
		case slices.Contains(s.Prerequisites[:k], name):
			return fault.At(here, "prerequisite %q is named twice", fault.Clip(name))
		}
	}
	return nil
}

// cycle finds jobs that wait for each other, as a path that ends where it began; nil for none. of says where the job of
// a ref stands.
func cycle(jobs []Spec, of map[int64]int) (found []int64) {
	const onPath, done = 1, 2
	state := make([]int, len(jobs))
	var path []int64
	var walk func(i int) bool
	walk = func(i int) bool {
		if state[i] == done {
			return false
		}
		ref := *jobs[i].Ref
		if state[i] == onPath {
			found = append(slices.Clone(path[slices.Index(path, ref):]), ref)
			return true
		}
		state[i], path = onPath, append(path, ref)
		for _, next := range jobs[i].Dependends {
			if k, ok := of[next]; ok && walk(k) {
				return true
			}
		}
		state[i], path = done, path[:len(path)-1]
		return false
	}
	for i := range jobs {
		if walk(i) {
			return found
		}
	}
	return nil
}
