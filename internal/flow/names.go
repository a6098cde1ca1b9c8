package flow

import (
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// WorkerURL is the worker of jobs, which is built in: it offers them to runners.
const WorkerURL = "run:"

// TypePrefix begins the transaction types of jobs, and no other's.
const TypePrefix = "job."

// TypeNeed is the type of the transactions of prerequisites. No runner takes it.
const TypeNeed = TypePrefix + "need"

// Type is the transaction type of the jobs of a script type.
func Type(scriptType string) string { return TypePrefix + scriptType }

// ScriptType is the script type of a transaction type, false for one that is none of a job's.
func ScriptType(typ string) (string, bool) {
	name, ok := strings.CutPrefix(typ, TypePrefix)
	return name, ok && name != "" && typ != TypeNeed
}

// Prefixes of the uids of transactions that carry jobs and needs. No client's begins with a colon.
const (
	jobUID  = ":job:"
	needUID = ":need:"
)

// UID is the uid of the transaction of a job.
func UID(job uuid.UUID) string { return jobUID + job.String() }

// NeedUID is the uid of the transaction of a prerequisite, by its number in its job.
func NeedUID(job uuid.UUID, n int) string { return needUID + job.String() + ":" + strconv.Itoa(n) }

// NeedHash is what the core knows the transaction of a prerequisite by.
func NeedHash(uid string) string { return strings.TrimPrefix(uid, ":") }

// NeedOf returns the prerequisite that a uid or a hash names.
func NeedOf(name string) (job uuid.UUID, n int, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimPrefix(name, ":"), strings.TrimPrefix(needUID, ":"))
	text, number, _ := strings.Cut(name, ":")
	if !ok {
		return job, 0, false
	}
	job, err := uuid.Parse(text)
	if err != nil {
		return job, 0, false
	}
	n, err = strconv.Atoi(number)
	return job, n, err == nil
}

// JobOfUID returns the job whose transaction has a uid.
func JobOfUID(uid string) (uuid.UUID, bool) {
	name, ok := strings.CutPrefix(uid, jobUID)
	if !ok {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(name)
	return id, err == nil
}

// BuiltIn are the script types that each context has as soon as it has a job or a runner.
var BuiltIn = []string{"osis", "python", "sal", "v"}

// RunnerTypes are the types of runners of the published design, with the script types that each takes where nothing
// else is said.
var RunnerTypes = map[string][]string{
	"v":      {"v"},
	"python": {"python"},
	"osis":   {"osis", "sal"},
	"rust":   {},
}
