package remote

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"time"
)

// lookupTimeout is how long a look-up of a name may take that only serves a warning.
const lookupTimeout = time.Second

// Reach tells which addresses may be called before anything is called: those that the guard of a Client lets through.
type Reach struct {
	guard  *guard
	allow  []netip.Prefix
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewReach is the reach of a client that may call allow besides all public addresses.
func NewReach(allow []netip.Prefix) *Reach {
	allow = unmapped(allow)
	return &Reach{guard: newGuard(allow), allow: allow, lookup: net.DefaultResolver.LookupNetIP}
}

// Reach is that of the client.
func (c *Client) Reach() *Reach { return c.reach }

// With is a reach that knows the same names and may call other ranges: those of another process.
func (r *Reach) With(allow []netip.Prefix) *Reach {
	allow = unmapped(allow)
	return &Reach{guard: newGuard(allow), allow: allow, lookup: r.lookup}
}

// Allowed are the ranges that may be called besides public addresses.
func (r *Reach) Allowed() []netip.Prefix { return r.allow }

// Place is where a URL leads.
type Place struct {
	Host    string
	Addrs   []netip.Addr // none: nothing is known
	Literal bool         // the URL says them itself; a name may mean others tomorrow
	NoHost  bool         // neither a name nor an address, whatever some resolver makes of it
}

// Literal returns the place that a URL names by an address, or by localhost, which never means another machine. A host
// that is another name has no addresses yet. postern.checked_callback judges hosts in SQL by the same rules.
func Literal(raw string) Place {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" { // noop: and the like
		return Place{}
	}
	p := Place{Host: u.Hostname()}
	addr, err := netip.ParseAddr(p.Host)
	switch web := u.Scheme == "http" || u.Scheme == "https"; {
	case err == nil:
		p.Addrs, p.Literal, p.NoHost = []netip.Addr{addr.Unmap()}, true, web && addr.Zone() != ""
	case localName.MatchString(p.Host):
		p.Addrs, p.Literal = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, true
	case web:
		p.NoHost = !hostName.MatchString(p.Host) || endsInNumber.MatchString(p.Host)
	}
	return p
}

// These tell what a host is. A name that ends in a number is an address to the resolvers of some systems (10.1, 0x7f.1
// and 2130706433 are), and to others a name that does not exist. A name with other letters has a form in ASCII, and its
// digits may be those of an address.
var (
	localName    = regexp.MustCompile(`(?i)^([a-z0-9_-]+[.])*localhost[.]?$`)
	hostName     = regexp.MustCompile(`^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*[.]?$`)
	endsInNumber = regexp.MustCompile(`(?i)(^|[.])([0-9]+|0x[0-9a-f]*)[.]?$`)
)

// Find is Literal, and looks up what another name means now. Of one that cannot be looked up nothing is known.
func (r *Reach) Find(ctx context.Context, raw string) Place {
	p := Literal(raw)
	if p.Host == "" || p.Literal || p.NoHost {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	p.Addrs, _ = r.lookup(ctx, "ip", p.Host)
	for i := range p.Addrs {
		p.Addrs[i] = p.Addrs[i].Unmap()
	}
	return p
}

// May says whether some address of the place may be called, as a dial would find; true where none is known.
func (r *Reach) May(p Place) bool {
	for _, addr := range p.Addrs {
		if r.guard.may(addr) {
			return true
		}
	}
	return len(p.Addrs) == 0
}

// Public says whether everybody may call the place.
func (p Place) Public() bool { return everybody.May(p) }

var everybody = NewReach(nil)

// Setting is what lets the place be called.
func (p Place) Setting() string {
	return "--worker-allow-cidr " + p.ranges() + " (POSTERN_WORKER_ALLOW_CIDR), or with a range around it"
}

func (p Place) ranges() string {
	addr := p.Addrs[0]
	if p.Literal && addr.IsLoopback() && addr.Is4() {
		return "127.0.0.0/8,::1/128"
	}
	return netip.PrefixFrom(addr.WithZone(""), addr.BitLen()).String()
}
