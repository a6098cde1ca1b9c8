package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"code.dny.dev/ssrf"
)

// guard dials addresses that are public or allowed. It checks the address that is really dialled, so a
// name that changes its mind between look-up and connect gains nothing.
type guard struct {
	safe func(network, address string, c syscall.RawConn) error
}

// newGuard allows the private prefixes of allow besides all public addresses, on any port.
func newGuard(allow []netip.Prefix) *guard {
	var v4, v6 []netip.Prefix
	for _, p := range unmapped(allow) {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	// The options replace each other: each may be given once.
	return &guard{safe: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...)).Safe}
}

// unmapped writes ranges of IPv4 addresses within IPv6 as ranges of IPv4: the dialled address is the IPv4 one.
func unmapped(list []netip.Prefix) (plain []netip.Prefix) {
	for _, p := range list {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		plain = append(plain, p)
	}
	return plain
}

// may says whether an address may be dialled.
func (g *guard) may(addr netip.Addr) bool {
	network := "tcp6"
	if addr.Is4() {
		network = "tcp4"
	}
	return g.safe(network, netip.AddrPortFrom(addr, 80).String(), nil) == nil
}

// dial connects, or fails with a refusal if every address of the host was refused.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var allowed atomic.Bool // happy eyeballs: two addresses may be tried side by side
	d := net.Dialer{Timeout: dialTimeout, Control: func(network, address string, c syscall.RawConn) error {
		if err := g.safe(network, address, c); err != nil {
			return err
		}
		allowed.Store(true)
		return nil
	}}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		// Of several errors the dialer shows the first. A host with one refused address and one that
		// does not answer is a host that does not answer.
		if isRefusal(err) && allowed.Load() {
			return nil, fmt.Errorf("no address of %s that may be called answers", address)
		}
		return nil, err
	}
	return newCountingConn(conn), nil
}

// isRefusal says whether err comes from the guard.
func isRefusal(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) ||
		errors.Is(err, ssrf.ErrInvalidHostPort)
}
