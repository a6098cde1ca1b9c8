package flow

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

// Written is a job as requests and messages write it.
type Written struct {
	Ref           *int64            `json:"ref,omitempty"`
	Script        string            `json:"script"`
	ScriptType    string            `json:"script_type"`
	Queue         string            `json:"queue,omitempty"`
	Topic         string            `json:"topic,omitempty"`
	Timeout       *int64            `json:"timeout,omitempty"`
	Retries       int               `json:"retries,omitempty"`
	Env           map[string]string `json:"env_vars,omitempty"`
	Network       bool              `json:"network,omitempty"`
	Prerequisites []string          `json:"prerequisites,omitempty"`
	NeedTimeout   *int64            `json:"prerequisite_timeout,omitempty"`
	Target        json.RawMessage   `json:"target,omitempty"`
}

// SpecsIn reads the jobs of a message. at is where the list stands.
func SpecsIn(at string, raw json.RawMessage) ([]Spec, error) {
	var list []Written
	err := json.Unmarshal(raw, &list)
	if err == nil {
		err = strict.Spelled(raw, &list)
	}
	if err != nil {
		return nil, fault.At(at, "%s: want a list of jobs, each as POST /jobs takes it: %.200s", at[1:], err)
	}
	specs := make([]Spec, len(list))
	refs := map[int64]bool{}
	for i := range list {
		here := fmt.Sprintf("%s/%d", at, i)
		if specs[i], err = list[i].spec(here); err != nil {
			return nil, err
		}
		if list[i].Target != nil {
			return nil, fault.At(here+"/target", "target: a job of a message is executed where the message is for; "+
				"jobs of POST /jobs and of flows have a target")
		}
		ref := specs[i].Ref
		if ref == nil {
			continue
		}
		if refs[*ref] {
			return nil, fault.At(here+"/ref", "ref %d: two jobs of the message have it", *ref)
		}
		refs[*ref] = true
	}
	return specs, nil
}

func (w *Written) spec(at string) (Spec, error) {
	s := Spec{
		Ref:           w.Ref,
		Script:        w.Script,
		ScriptType:    w.ScriptType,
		Queue:         w.Queue,
		Topic:         w.Topic,
		Retries:       w.Retries,
		Env:           w.Env,
		Network:       w.Network,
		Prerequisites: w.Prerequisites,
	}
	var err error
	if s.Timeout, err = Seconds(at+"/timeout", w.Timeout, DefaultTimeout); err != nil {
		return s, err
	}
	if s.NeedTimeout, err = Seconds(at+"/prerequisite_timeout", w.NeedTimeout, DefaultNeedTimeout); err != nil {
		return s, err
	}
	if err := CheckScriptType(at+"/script_type", w.ScriptType); err != nil {
		return s, err
	}
	return s, s.Validate(at)
}

// Seconds reads a length of time as a request has it; usual where it is left out.
func Seconds(at string, n *int64, usual time.Duration) (time.Duration, error) {
	switch most := int64(MaxTimeout / time.Second); {
	case n == nil:
		return usual, nil
	case *n <= 0 || *n > most:
		return 0, fault.At(at, "%s %d: want 1 to %d, in seconds", lastOf(at), *n, most)
	}
	return time.Duration(*n) * time.Second, nil
}

func lastOf(pointer string) string {
	for i := len(pointer) - 1; i >= 0; i-- {
		if pointer[i] == '/' {
			return pointer[i+1:]
		}
	}
	return pointer
}

var scriptTypeName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,99}$`)

// CheckScriptType refuses what is no name of a script type that runners execute.
func CheckScriptType(at, name string) error {
	if !scriptTypeName.MatchString(name) || name == "need" {
		return fault.At(at, "script type %q: want a name such as python, 1 to 100 of a-z 0-9 _ -, the first a letter",
			fault.Clip(name))
	}
	return nil
}
