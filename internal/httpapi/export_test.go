package httpapi

import (
	"maps"
	"slices"

	"github.com/postern-dev/postern/internal/pg/stores"
)

// Codes lists every code that a problem may have, with its status.
func Codes() map[string]int {
	all := map[string]int{}
	for code, p := range problems {
		all[code] = p.status
	}
	return all
}

// ProblemCodes are these codes in the order of the alphabet.
func ProblemCodes() []string { return slices.Sorted(maps.Keys(problems)) }

// ProblemOf is what the table of problems says of a code.
func ProblemOf(code string) (status int, title string, retryable bool) {
	p := problems[code]
	return p.status, p.title, p.retryable
}

// Waiting is how many requests wait.
func (a *API) Waiting() int { return len(a.waits.slots) }

// Held is how many requests wait for something that is handed out, and how many streams are open.
func (a *API) Held() int { return len(a.news.slots) }

// AccessDiffers compares the table of access with the routes.
func AccessDiffers() (missing, gone []string) {
	ops := map[string]bool{}
	for _, item := range New(Config{Store: &stores.Store{}, Auth: "none"}).huma.OpenAPI().Paths {
		for _, op := range methods(item) {
			if ops[op.OperationID] = true; !inTable(op.OperationID) {
				missing = append(missing, op.OperationID)
			}
		}
	}
	for id := range access {
		if !ops[id] && id != "move-clock" {
			gone = append(gone, id)
		}
	}
	return missing, gone
}

func inTable(id string) bool { _, ok := access[id]; return ok }
