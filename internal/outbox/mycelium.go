package outbox

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// MyceliumScheme begins the URLs that are called over a Mycelium network.
const MyceliumScheme = "mycelium:"

// MyceliumURL is such a URL: mycelium:KEY/PATH.
type MyceliumURL struct {
	Key  string // public key of the node, 64 lower-case hex digits
	Path string // "", or the path with its slash, escaped
}

var (
	myceliumKey  = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
	myceliumPath = regexp.MustCompile(`^[A-Za-z0-9/._~!$&'()*+,;=:@%-]*$`)
)

// IsMycelium says whether a URL is meant to be one over a Mycelium network, well formed or not.
func IsMycelium(raw string) bool { return strings.HasPrefix(raw, MyceliumScheme) }

// ParseMycelium reads such a URL. The error says what is wanted.
func ParseMycelium(raw string) (a MyceliumURL, err error) {
	rest, ok := strings.CutPrefix(raw, MyceliumScheme)
	if !ok {
		return a, errors.New("want it to begin with " + MyceliumScheme)
	}
	if strings.ContainsAny(rest, "?#") {
		return a, errors.New("want neither query nor fragment in it")
	}
	key, path, slash := strings.Cut(rest, "/")
	if !myceliumKey.MatchString(key) {
		return a, errors.New("want mycelium:KEY/PATH, with the public key of a node in 64 hex digits")
	}
	a.Key = strings.ToLower(key)
	if slash {
		a.Path = "/" + path
	}
	if _, err := url.PathUnescape(a.Path); err != nil || !myceliumPath.MatchString(a.Path) {
		return a, errors.New("want a path of an URL behind the key, rightly escaped")
	}
	return a, nil
}

// CheckMycelium refuses what begins as a URL over a Mycelium network and is none.
func CheckMycelium(pointer, raw string) error {
	if _, err := ParseMycelium(raw); err != nil {
		name := pointer[strings.LastIndexByte(pointer, '/')+1:]
		return fault.At(pointer, "%s %q: %s", name, fault.Clip(raw), err)
	}
	return nil
}
