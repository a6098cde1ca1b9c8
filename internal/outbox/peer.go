package outbox

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// PeerURL is the worker URL of what goes to peers. Their worker is built in.
const PeerURL = "peer:"

// PeerType is the type of what goes to a peer.
func PeerType(peer string) string { return "peer." + peer }

// PeerOf is the peer to which a type goes, false for the types of others.
func PeerOf(typ string) (peer string, ok bool) { return strings.CutPrefix(typ, "peer.") }

// PeerQueue is the queue of what an actor writes to a peer.
func PeerQueue(peer, actor string) string { return "peer:" + peer + ":" + actor }

// IsPeerQueue says whether a queue has such a name.
func IsPeerQueue(name string) bool {
	return strings.HasPrefix(name, "peer:") && strings.Count(name, ":") > 1
}

// PeerNameMost is how long the name of a peer may be, so that its type is not too long.
const PeerNameMost = 100

// Door is where a peer takes calls, as its URL says: the context, and the peer that this installation is there.
type Door struct{ Context, Peer string }

var door = regexp.MustCompile(
	`/contexts/([A-Za-z0-9][A-Za-z0-9._:@-]{0,199})/peers/([A-Za-z0-9][A-Za-z0-9._:@-]{0,99})$`)

// DoorOf reads the end of the URL of a peer.
func DoorOf(raw string) (d Door, ok bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return d, false
	}
	path := u.Path
	if IsMycelium(raw) {
		path = u.Opaque
	}
	if m := door.FindStringSubmatch(path); m != nil {
		return Door{m[1], m[2]}, true
	}
	return d, false
}

// CheckPeerURL refuses what is no URL of a door, and one by which messages would go over a network for others to read,
// unless the peer is insecure. A Mycelium network encrypts from node to node.
func CheckPeerURL(pointer, raw string, insecure bool) error {
	u, err := url.Parse(raw)
	switch over := IsMycelium(raw); {
	case over:
		if err := CheckMycelium(pointer, raw); err != nil {
			return err
		}
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fault.At(pointer, "url %q: want an absolute https URL", fault.Clip(raw))
	case u.User != nil, strings.ContainsAny(raw, "?#"): // an empty query, too, ends the path before a verb
		return fault.At(pointer, "url: want neither credentials nor query nor fragment in it; calls are signed")
	}
	if _, ok := DoorOf(raw); !ok {
		return fault.At(pointer, "url %q: want it to end with /contexts/NAME/peers/NAME: the context there, and the "+
			"name that it has for this one; PUT /peers there answers it as door", fault.Clip(raw))
	}
	if u != nil && u.Scheme == "http" && !insecure && !isLoopback(u.Hostname()) {
		return fault.At(pointer, "url %q: want https, since others can read what goes over http; with insecure: true "+
			"it is called all the same", fault.Clip(raw))
	}
	return nil
}

func isLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
