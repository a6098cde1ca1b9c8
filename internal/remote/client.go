package remote

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/mycelium"
)

// Limits of every call (reliability: hostile worker).
const (
	maxAnswer      = 1 << 20          // bytes of an answer that are read
	maxHeader      = 64 << 10         // bytes of the header of an answer
	dialTimeout    = 3 * time.Second  // to connect
	tlsTimeout     = 5 * time.Second  // to shake hands
	askTimeout     = 10 * time.Second // for status, batch and max-retries
	hookTimeout    = 30 * time.Second // for a hook whose call names no timeout
	defaultTimeout = 10 * time.Minute // for a dispatch whose call names none (S2.16)

	// Reference workers close an idle connection after 5 s. We let go long before, since a request that
	// meets such a close half-way is ambiguous and costs a question.
	idleTimeout = time.Second
)

// Config is what a Client may do.
type Config struct {
	AllowCIDR []netip.Prefix // private addresses that workers may have; public ones always may
	UserAgent string         // "" = "postern"

	// Lookup finds the addresses of a host where a URL is judged before it is called (Reach); nil: as the system does.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	// Mycelium is the address of the local node of a Mycelium network; "": workers with such URLs are not called.
	Mycelium string

	SigningKey ed25519.PrivateKey // signs calls of tools that want it; nil: none, and they are not called

	// Observe sees every exchange as it came over the wire, with the context of its call; nil: exchanges are not
	// observed.
	Observe func(context.Context, Exchange)
}

// Exchange is one request and what came of it, for Observe.
type Exchange struct {
	Method, URL string
	Status      int         // 0 without an answer
	Header      http.Header // of the answer
	Body        []byte      // nil when it could not be read whole
	Sent        bool        // some byte of the request may have reached the worker
	Code        string      // why there is no answer, or no whole body: "connection_refused", "timeout", ...
	Message     string      // the same as a sentence
}

// Client calls workers over HTTP. It is safe for concurrent use and shares one pool of connections;
// Close it at the end.
type Client struct {
	transport *http.Transport
	mycelium  *mycelium.Node // nil: there is none
	reach     *Reach
	userAgent string
	key       ed25519.PrivateKey
	observe   func(context.Context, Exchange)
	now       func() time.Time

	mu         sync.Mutex
	noBatch    map[string]time.Time // base URL without /status:batch -> until when that is believed
	statusAt   map[asked]time.Time  // when a /status gave an answer of the contract
	maxRetries map[string]*maxRetries
}

// New makes a client that dials public addresses and those of cfg.AllowCIDR.
func New(cfg Config) *Client {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "postern"
	}
	reach := NewReach(cfg.AllowCIDR)
	if cfg.Lookup != nil {
		reach.lookup = cfg.Lookup
	}
	var node *mycelium.Node
	if cfg.Mycelium != "" {
		node = newMycelium(cfg.Mycelium)
	}
	return &Client{
		transport:  guarded(reach.guard),
		mycelium:   node,
		reach:      reach,
		userAgent:  cfg.UserAgent,
		key:        cfg.SigningKey,
		observe:    cfg.Observe,
		now:        time.Now,
		noBatch:    map[string]time.Time{},
		statusAt:   map[asked]time.Time{},
		maxRetries: map[string]*maxRetries{},
	}
}

func guarded(g *guard) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy of the environment would dial for us, unguarded
		DialContext:            g.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    tlsTimeout,
		MaxIdleConnsPerHost:    128,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // an answer is as long as it looks
		MaxResponseHeaderBytes: maxHeader,
	}
}

// Guarded is an HTTP client for what is no worker: it dials public addresses and those of allow, and follows no
// redirect.
func Guarded(allow []netip.Prefix, timeout time.Duration) *http.Client {
	return &http.Client{Transport: guarded(newGuard(allow)), Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Close lets go of idle connections. Calls in flight end by their own context.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	if c.mycelium != nil {
		c.mycelium.Close()
	}
}

var _ Worker = (*Client)(nil)
