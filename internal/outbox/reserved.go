package outbox

import (
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// reserved are the names under which systems of Postern post transactions of their own, by the field of a post. A
// client that took one would answer in the place of a system, or stop it. The trigger of postern.outbox has the same
// list (postern.refuse_reserved), and a test compares them.
var reserved = []struct{ field, prefix, whose string }{
	{"type", "leader.", "for events of sources"},
	{"uid", "event:", "for events of sources"},
	{"queue", "processor:", "for batches of processors"},
}

// Reserved refuses the names of a post that are for Postern's own systems: fault forbidden.
func Reserved(typ, uid, queue string) error {
	given := map[string]string{"type": typ, "uid": uid, "queue": queue}
	for _, r := range reserved {
		if value := given[r.field]; strings.HasPrefix(value, r.prefix) {
			return fault.New(fault.Forbidden, "forbidden", "%s %s is posted %s, by Postern alone: use one of your own",
				r.field, fault.Clip(value), r.whose).About("/" + r.field)
		}
	}
	return nil
}
