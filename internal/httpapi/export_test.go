package httpapi

import "github.com/postern-dev/postern/internal/pg/stores"

// Codes lists every code that a problem may have, with its status.
func Codes() map[string]int {
	all := map[string]int{}
	for code, p := range problems {
		all[code] = p.status
	}
	return all
}

// Waiting is how many requests wait.
func (a *API) Waiting() int { return len(a.waits.slots) }

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
