package outbox

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Poster says who posts a transaction, and in a dispatcher who may post to its type.
type Poster string

// Each caller is one of these. Of Anyone nothing is known but that it may post in its context.
const (
	Anyone       Poster = "anyone"
	ByProcessors Poster = "processors" // the execution of a batch
	ByLeader     Poster = "leader"     // the call of a tool, or the result of an event
	ByAdmin      Poster = "admin"      // people and programs with the role admin
	ByPeers      Poster = "peers"      // a message to another installation
)

// Posters are all that a dispatcher may say.
var Posters = []Poster{Anyone, ByProcessors, ByLeader, ByAdmin, ByPeers}

// Name is the beginning of names under which a system of Postern posts transactions of its own. Whose says in a
// sentence what they are posted for.
type Name struct {
	Field, Prefix string
	System        Poster
	Whose         string
}

// reserved are these names. A client that took one would answer in the place of a system, or stop it. The trigger of
// postern.outbox has the same list (postern.reserved), and a test compares them. The uids of executions begin with a
// colon, as the name of no client does.
var reserved = []Name{
	{"type", "leader.", ByLeader, "for events of sources"},
	{"uid", "event:", ByLeader, "for events of sources"},
	{"queue", "processor:", ByProcessors, "for batches of processors"},
	{"type", "peer.", ByPeers, "to other installations"},
	{"queue", "peer:", ByPeers, "to other installations"},
}

// ReservedNames lists them.
func ReservedNames() []Name { return slices.Clone(reserved) }

// Reserved refuses the names of a post that are for another than by: fault forbidden.
func Reserved(by Poster, typ, uid, queue string) error {
	for _, r := range reserved {
		value := typ
		switch r.Field {
		case "uid":
			value = uid
		case "queue":
			value = queue
		}
		if r.System != by && strings.HasPrefix(value, r.Prefix) {
			return fault.New(fault.Forbidden, "forbidden", "%s %s is posted %s, by Postern alone: use one of your own",
				r.Field, fault.Clip(value), r.Whose).About("/" + r.Field)
		}
	}
	return nil
}

// SystemOf is the system that posts a type whose name is reserved, Anyone for other types.
func SystemOf(typ string) Poster {
	for _, r := range reserved {
		if r.Field == "type" && strings.HasPrefix(typ, r.Prefix) {
			return r.System
		}
	}
	return Anyone
}

// postedAlone says of each poster who it is, and what others do instead.
var postedAlone = map[Poster]string{
	ByProcessors: "processors alone: send a batch through an authorization that names it",
	ByLeader:     "the leader alone: it is for events of sources",
	ByAdmin:      "the role admin alone",
	ByPeers:      "Postern alone: it goes to another installation",
}

// MayPost refuses a post to the type by others than its dispatcher says: fault forbidden.
func (d *Dispatcher) MayPost(by Poster) error {
	if d.PostedBy == "" || d.PostedBy == Anyone || d.PostedBy == by {
		return nil
	}
	return fault.New(fault.Forbidden, "forbidden", "type %s is posted by %s", fault.Clip(d.Type),
		postedAlone[d.PostedBy]).About("/type")
}
