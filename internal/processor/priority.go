package processor

import "github.com/postern-dev/postern/internal/fault"

// Priority says in which of a processor's two lines a batch stands. The zero value is High.
type Priority int16

// The lines of a processor, in the order in which a tick looks at them (S4.4).
const (
	High Priority = 0
	Med  Priority = 1
)

// Priorities lists both.
var Priorities = [2]Priority{High, Med}

// String is the priority as clients write it.
func (p Priority) String() string {
	if p == High {
		return "High"
	}
	return "Med"
}

// MarshalText writes what String writes.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what String writes, or refuses it as Invalid.
func (p *Priority) UnmarshalText(text []byte) error {
	for _, known := range Priorities {
		if string(text) == known.String() {
			*p = known
			return nil
		}
	}
	return fault.At("/priority", "priority %q is not known: want High or Med", fault.Clip(string(text)))
}
