package pg

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/twin"
)

// Kind is something that most installations have none of. A loop for it waits until there is any.
type Kind string

// Kinds says for each kind whether there is any at all.
type Kinds map[Kind]bool

// RegisterKind registers a kind, before anything runs; exists is a condition of SQL that says whether there is any. It
// is read with the configuration, once a second.
func (s *Store) RegisterKind(k Kind, exists string) {
	s.Conf.kinds.registered = append(s.Conf.kinds.registered, registeredKind{k, exists})
}

type registeredKind struct {
	kind   Kind
	exists string
}

// read adds to a reading of the configuration which kinds there are, and what is in quarantine.
func (k *kinds) read(b *pgx.Batch, into *confView) {
	var all []string
	for _, l := range k.registered {
		all = append(all, l.exists)
	}
	var found []bool
	var contexts []int32
	var types []string
	into.kinds = Kinds{}
	each(b, `SELECT ARRAY[`+strings.Join(all, ", ")+`]::boolean[], `+quarantineSQL,
		[]any{&found, &into.quarantine.number, &into.quarantine.lines, &into.quarantine.installation,
			&contexts, &types}, func() {
			for i, l := range k.registered {
				into.kinds[l.kind] = found[i]
			}
			for i := range contexts {
				if !twin.Planted("quarantine_unheeded") {
					into.quarantine.scopes = append(into.quarantine.scopes, scope{contexts[i], types[i]})
				}
			}
		})
}

// kinds is what the last reading of the configuration found, and who waits for more.
type kinds struct {
	registered []registeredKind
	mu         sync.Mutex
	now        Kinds
	news       chan struct{} // closed when now changes; nil while no loop waits
}

// tell notes what the present view has: it is read behind the lock, so that no older one is noted after it.
func (c *conf) tell() {
	k := &c.kinds
	k.mu.Lock()
	defer k.mu.Unlock()
	now := c.view.Load().kinds
	if maps.Equal(k.now, now) {
		return
	}
	if k.now = now; k.news != nil {
		close(k.news)
		k.news = nil
	}
}

// known returns the kinds as they were last read, and what is closed when they change.
func (k *kinds) known() (Kinds, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.news == nil {
		k.news = make(chan struct{})
	}
	return k.now, k.news
}

// Has says whether there was something of a kind when the configuration was last read.
func (s *Store) Has(kind Kind) bool { return s.Conf.view.Load().kinds[kind] }

// Await waits until there is something of a kind: of what this process made at once, of what another did until the
// configuration is read again, within a second. False is the end of ctx.
func (s *Store) Await(ctx context.Context, kind Kind) bool {
	for {
		now, news := s.Conf.kinds.known()
		if now[kind] {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-news:
		}
	}
}

// Appeared reads the configuration again where the first of its kind may have been made.
func (s *Store) Appeared(ctx context.Context, created bool) error {
	if !created {
		return nil
	}
	return s.Reconfigured(ctx)
}
