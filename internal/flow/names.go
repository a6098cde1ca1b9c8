package flow

import (
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
