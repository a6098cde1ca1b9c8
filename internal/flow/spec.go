package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
)

// Limits of what somebody writes of a job.
const (
	MaxScript  = 256 << 10 // bytes
	MaxEnv     = 128 << 10 // bytes, of names and values together
	MaxRetries = 255
	MaxRef     = 1<<32 - 1
	MaxResult  = 64 << 10  // bytes, of a result as JSON
	MaxLog     = 1 << 20   // bytes that are kept of the output of a try
	MaxLine    = 16 << 10  // bytes, of one row of it
	MaxInputs  = 256 << 10 // bytes of results that are handed out with a claim; more is fetched
	MaxTimeout = 30 * 24 * time.Hour
)

// DefaultTimeout is how long a try may take where nothing is said.
const DefaultTimeout = 10 * time.Minute

// Spec is what somebody writes of a job.
type Spec struct {
	Ref        *int64
	Script     string
	ScriptType string
	Queue      string
	Topic      string // of the runners that may take it; "": those of its script type
	Timeout    time.Duration
	Retries    int
	Env        map[string]string
	Network    bool
	Peer       string `json:",omitempty"` // the other installation that is to execute it; "": runners of this one do
	Envelope   []byte `json:"-"`          // what its actor has signed for there

	Dependends    []int64       // refs of jobs of its flow
	Prerequisites []string      // names that somebody says are met
	NeedTimeout   time.Duration // how long each may take
}

// DefaultNeedTimeout is how long a prerequisite may take where nothing is said.
const DefaultNeedTimeout = 24 * time.Hour

// Validate refuses a job that cannot be meant. at is where it stands in the request.
func (s *Spec) Validate(at string) error {
	switch {
	case s.Ref != nil && (*s.Ref < 0 || *s.Ref > MaxRef):
		return fault.At(at+"/ref", "ref %d: want 0 to %d", *s.Ref, int64(MaxRef))
	case s.Script == "":
		return fault.At(at+"/script", "script is empty: want 1 to %d bytes", MaxScript)
	case len(s.Script) > MaxScript:
		return fault.At(at+"/script", "script has %d bytes: want 1 to %d", len(s.Script), MaxScript)
	case strings.ContainsRune(s.Script, 0):
		return fault.At(at+"/script", "script has a NUL byte, which no text has")
	case s.Topic != "" && !plainName.MatchString(s.Topic):
		return fault.At(at+"/topic", "topic %q: want %s", fault.Clip(s.Topic), nameIs)
	case s.Queue != "" && !plainName.MatchString(s.Queue):
		return fault.At(at+"/queue", "queue %q: want %s", fault.Clip(s.Queue), nameIs)
	case s.Timeout <= 0 || s.Timeout > MaxTimeout:
		return fault.At(at+"/timeout", "timeout %d: want 1 to %d, in seconds", int64(s.Timeout/time.Second),
			int64(MaxTimeout/time.Second))
	case s.Retries < 0 || s.Retries > MaxRetries:
		return fault.At(at+"/retries", "retries %d: want 0 to %d further tries", s.Retries, MaxRetries)
	case s.NeedTimeout < 0 || s.NeedTimeout > MaxTimeout:
		return fault.At(at+"/prerequisite_timeout", "prerequisite_timeout %d: want 1 to %d, in seconds",
			int64(s.NeedTimeout/time.Second), int64(MaxTimeout/time.Second))
	}
	if err := outbox.Reserved(outbox.Anyone, "", "", s.Queue); err != nil {
		f := fault.As(err)
		return fault.New(f.Kind, f.Code, "%s", f.Detail).About(at + "/queue")
	}
	if err := s.checkNeeds(at); err != nil {
		return err
	}
	return CheckEnv(at+"/env_vars", s.Env)
}

// Topics and queues have names as all that people name.
const (
	namePattern = `^[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}$`
	nameIs      = "1 to 200 of A-Z a-z 0-9 . _ : @ -, the first a letter or digit"
)

var plainName = regexp.MustCompile(namePattern)

// Lane is where tries of a job are offered: that of its script type, or one of its topic. In that of a peer no runner
// takes any.
func (s *Spec) Lane() string {
	if s.Peer != "" {
		return "peer:" + s.Peer
	}
	if s.Topic == "" {
		return s.ScriptType
	}
	return TopicLane(s.Topic, s.ScriptType)
}

// TopicLane is the lane of jobs of a script type that name a topic. A script type has no colon.
func TopicLane(topic, scriptType string) string { return "topic:" + topic + ":" + scriptType }

// TypeOfLane is the script type of the jobs in a lane.
func TypeOfLane(lane string) string { return lane[strings.LastIndexByte(lane, ':')+1:] }

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckEnv refuses variables of an environment that a script may not be given.
func CheckEnv(at string, env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		switch {
		case !envName.MatchString(name):
			return fault.At(at, "env_vars: the name %q: want letters, digits and _, the first no digit",
				fault.Clip(name))
		case name == "PATH" || name == "HOME" || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "POSTERN_"):
			return fault.At(at+"/"+name, "env_vars: %s is not a job's to set: PATH, HOME, LD_* and POSTERN_* come "+
				"from the runner", fault.Clip(name))
		case strings.ContainsRune(value, 0):
			return fault.At(at+"/"+name, "env_vars: the value of %s has a NUL byte, which no variable has",
				fault.Clip(name))
		}
	}
	if size := sizeOf(env); size > MaxEnv {
		return fault.At(at, "env_vars have %d bytes together: want at most %d", size, MaxEnv)
	}
	return nil
}

// Size is how many bytes the script and the environment of the job take.
func (s *Spec) Size() int { return len(s.Script) + sizeOf(s.Env) }

// sizeOf is how many bytes variables take in an environment: each has a = and an end.
func sizeOf(env map[string]string) (size int) {
	for name, value := range env {
		size += len(name) + len(value) + 2
	}
	return size
}

// CheckTogether refuses variables of a flow and of a job that are too large together: no runner could execute the job.
// at is where the variables of one of them stand.
func CheckTogether(at string, flow, job map[string]string) error {
	if size := sizeOf(Environment(flow, job)); size > MaxEnv {
		return fault.At(at, "env_vars of the flow and of a job of it have %d bytes together: want at most %d", size,
			MaxEnv)
	}
	return nil
}

// Environment is what a job is given: the variables of its flow, and over them its own (S5.5). Those that begin with
// POSTERN_ come with each try.
func Environment(flow, job map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, flow)
	maps.Copy(all, job)
	return all
}

// CheckResult reads a result: an object of strings. at names the field.
func CheckResult(at string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), nil
	}
	if len(raw) > MaxResult {
		return nil, fault.At("/"+at, "%s has %d bytes: want at most %d", at, len(raw), MaxResult)
	}
	var values map[string]*string
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fault.At("/"+at, "%s: want an object whose values are strings, such as {\"n\": \"3\"}", at)
	}
	for name, v := range values {
		if v == nil {
			return nil, fault.At("/"+at, "%s: the value of %q is null: want a string", at, fault.Clip(name))
		}
	}
	out, err := json.Marshal(values)
	return out, err
}

// Carried is the data of a transaction that carries a job which no call to /jobs made: a job in SQL, or posted as a
// transaction.
type Carried struct {
	Script  string            `json:"script"`
	Env     map[string]string `json:"env_vars"`
	Timeout int64             `json:"timeout"`
	Network bool              `json:"network"`
	Topic   string            `json:"topic"`
}

// CarriedIn reads the data of such a transaction, as far as it can be read. why is empty for a job that can be run.
func CarriedIn(data json.RawMessage) (s Spec, why string) {
	c := Carried{Timeout: int64(DefaultTimeout / time.Second)}
	if err := strict.Read(data, &c); err != nil { // env_vars alone is shown without values, and Env_Vars is not
		return Spec{Timeout: DefaultTimeout}, fmt.Sprintf("its data is not that of a job: %s",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	s = Spec{Script: c.Script, Env: c.Env, Network: c.Network, Topic: c.Topic,
		Timeout: time.Duration(c.Timeout) * time.Second}
	if c.Timeout > int64(MaxTimeout/time.Second) {
		s.Timeout = 0
	}
	if err := s.Validate(""); err != nil {
		return Spec{Timeout: DefaultTimeout}, fault.As(err).Detail
	}
	return s, ""
}

// Schema is what the data of such a transaction must fit.
const Schema = `{"type": "object", "required": ["script"], "additionalProperties": false, "properties": {
	"script": {"type": "string", "minLength": 1, "maxLength": 262144},
	"env_vars": {"type": "object", "additionalProperties": {"type": "string"},
		"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": {"pattern": "^(PATH$|HOME$|LD_|POSTERN_)"}}},
	"timeout": {"type": "integer", "minimum": 1, "maximum": 2592000},
	"topic": {"type": "string", "pattern": "` + namePattern + `"},
	"network": {"type": "boolean"}}}`
