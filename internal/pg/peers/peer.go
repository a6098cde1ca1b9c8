package peers

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Settings is what people write of a peer.
type Settings struct {
	Name     string
	URL      string // of its door; "": it calls, and is not called
	Insecure bool
	Secret   []byte // nil: it stays as it is
}

// Peer is one with what is known of it.
type Peer struct {
	Settings
	ID           int32
	Context      int32
	Installation string // "" until it was met
	MetAt        *time.Time
	RefusedAt    *time.Time // since when it refuses calls
	RefusedCode  string
	Refused      string
	SecretUntil  *time.Time // until when the secret before the present one is good
	Version      int64
	CreatedAt    time.Time
	Life         int64 // of its store, as it said last; 0: it has not said
	ToldLife     int64 // of this store, as it was told last; 0: it was not told; -1: it is to be told
	OwnLife      int64 // of this store

	before []byte   // the secret that is good until then; nil for none
	older  [][]byte // those of rotations before, while they are good
}

// Secrets are those under which its calls are believed, and with which calls to it are signed.
func (p *Peer) Secrets() [][]byte {
	list := [][]byte{p.Secret}
	if p.before != nil {
		list = append(list, p.before)
	}
	return append(list, p.older...)
}

// Type is that of the transactions which carry messages to the peer.
func (p *Peer) Type() string { return outbox.PeerType(p.Name) }

const peersSQL = `SELECT p.peer_id, p.context_id, p.name, p.url, p.insecure, p.installation, p.met_at, p.refused_at,
		p.refused_code, p.refused, p.version, p.created_at, x.secret,
		CASE WHEN x.secret_until > coalesce($1::timestamptz, clock_timestamp()) THEN x.secret_before END,
		CASE WHEN x.secret_until > coalesce($1::timestamptz, clock_timestamp()) THEN x.secret_until END,
		coalesce(p.life, 0), coalesce(p.told_life, 0), (SELECT y.life FROM postern.store y),
		ARRAY(SELECT o.secret
			FROM ROWS FROM (unnest(x.secret_older), unnest(x.older_until)) o(secret, until)
			WHERE o.until > coalesce($1::timestamptz, clock_timestamp()))
	FROM postern.peer p
	JOIN postern.peer_secret x USING (peer_id)
	WHERE p.removed_at IS NULL`

func scanPeer(row pgx.CollectableRow) (*Peer, error) {
	p := &Peer{}
	return p, row.Scan(&p.ID, &p.Context, &p.Name, &p.URL, &p.Insecure, &p.Installation, &p.MetAt, &p.RefusedAt,
		&p.RefusedCode, &p.Refused, &p.Version, &p.CreatedAt, &p.Secret, &p.before, &p.SecretUntil,
		&p.Life, &p.ToldLife, &p.OwnLife, &p.older)
}

func (s *Store) peers(ctx context.Context, where string, args ...any) ([]*Peer, error) {
	rows, err := s.Db(ctx).Query(ctx, peersSQL+where, append([]any{s.LeaseNow()}, args...)...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanPeer)
	return list, db.Known(err)
}

// Peers lists up to limit peers of a context by name, those after a given one.
func (s *Store) Peers(ctx context.Context, contextID int32, after string, limit int) ([]*Peer, error) {
	return s.peers(ctx, ` AND p.context_id = $2 AND p.name > $3 ORDER BY p.name LIMIT $4`, contextID, after, limit)
}

// Peer returns one peer with its secrets, or NotFound.
func (s *Store) Peer(ctx context.Context, contextID int32, name string) (*Peer, error) {
	list, err := s.peers(ctx, ` AND p.context_id = $2 AND p.name = $3`, contextID, name)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, noPeer(name)
	}
	return list[0], nil
}

func noPeer(name string) error {
	return fault.New(fault.NotFound, "not_found", "no peer %q", fault.Clip(name))
}

const peerLock = `SELECT version, removed_at IS NOT NULL
	FROM postern.peer
	WHERE context_id = $1 AND name = $2
	FOR UPDATE`

// PutPeer creates a peer or replaces its settings; version as in db.MatchVersion. Where its URL or its secret becomes
// another one it has to be met anew. The secret that it has keeps those before it. With a URL it has a dispatcher,
// through which messages go to it. Conflict "in_use": it loses its URL, and a message or a job that is for it has not
// ended, or others need it.
func (s *Store) PutPeer(ctx context.Context, by db.By, p Settings, version int64) (created bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		if err := by.Admin(ctx, t, by.Context); err != nil {
			return err
		}
		created, err = t.LockVersion(ctx, version, peerLock, by.Context, p.Name)
		if err != nil {
			return err
		}
		if created && p.Secret == nil {
			return fault.At("/secret", "secret: want the one that the other installation has, or a new one for both: "+
				"whsec_ and the base64 of 24 to 64 bytes, such as printf whsec_; openssl rand -base64 32")
		}
		if !created && p.URL == "" {
			if err := s.mayFallSilent(ctx, t, by.Context, p.Name); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.peer AS p (context_id, name, url, insecure, created_at)
			VALUES ($1, $2, $3, $4, coalesce($5::timestamptz, clock_timestamp()))
			ON CONFLICT (context_id, name) DO UPDATE SET url = excluded.url, insecure = excluded.insecure,
				installation = CASE WHEN p.url = excluded.url AND NOT $6 THEN p.installation ELSE '' END,
				met_at = CASE WHEN p.url = excluded.url AND NOT $6 THEN p.met_at END,
				refused_at = NULL, refused_code = '', refused = '', removed_at = NULL, version = p.version + 1`,
			by.Context, p.Name, p.URL, p.Insecure, s.Clock(), created || p.Secret != nil)
		if p.Secret != nil {
			b.Queue(`INSERT INTO postern.peer_secret AS x (peer_id, secret)
				SELECT p.peer_id, $3 FROM postern.peer p WHERE (p.context_id, p.name) = ($1, $2)
				ON CONFLICT (peer_id) DO UPDATE SET secret = excluded.secret, secret_before = NULL,
					secret_until = NULL, secret_older = '{}', older_until = '{}'
				WHERE x.secret <> excluded.secret OR $4`, by.Context, p.Name, p.Secret, created)
		}
		if p.URL != "" {
			s.equip(b, by.Context, p.Name)
		}
		s.AuditIn(b, by, "put", "/peers/"+p.Name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Reconfigured(ctx)
}

// mayFallSilent refuses to take its URL from a peer while it has something that it would not be asked about any more.
func (s *Store) mayFallSilent(ctx context.Context, t *db.Txn, contextID int32, name string) error {
	if s.OpenAt != nil {
		messages, jobs, err := s.OpenAt(ctx, t, contextID, name)
		if err != nil {
			return err
		}
		if messages+jobs > 0 {
			return fault.New(fault.Conflict, "in_use", "peer %q: %d messages to it and %d jobs for it have not ended, "+
				"and without a url it is asked about none: let them end, cancel them, or keep the url", name, messages,
				jobs).About("/url")
		}
	}
	return s.used(ctx, t.Conn, contextID, name)
}

// Dispatcher is that of what goes to a peer. The same call may be made again, since the peer knows messages by their
// ids, and it ends with the answer: nothing is asked about later.
func Dispatcher(typ string) outbox.Dispatcher {
	d, none := outbox.DefaultDispatcher(), 0
	d.Type, d.WorkerURL, d.Idempotent, d.Slots = typ, outbox.PeerURL, true, 64
	d.Retry.MaxRetries = &none // a refusal is for good, and blocked transactions wait
	d.Retry.Initial, d.Retry.Cap = outbox.Duration(time.Second), outbox.Duration(time.Minute)
	d.Fee = outbox.Fee{Kind: "none", CapPercent: 100}
	d.Timeouts.Dispatch = outbox.Duration(30 * time.Second)
	d.Unknown = outbox.UnknownUnresolved
	d.PostedBy = outbox.ByPeers
	return d
}

// equip gives a peer its dispatcher. Settings that are there stay as they are.
func (s *Store) equip(b *pgx.Batch, contextID int32, name string) {
	d := Dispatcher(outbox.PeerType(name))
	settings, _ := json.Marshal(d) // strings and numbers
	b.Queue(`INSERT INTO postern.dispatcher AS d (context_id, type, settings) VALUES ($1, $2, $3::text::jsonb)
		ON CONFLICT (context_id, type) DO UPDATE SET removed_at = NULL, gate_until = NULL, gate_failures = 0,
			gate_reason = '', gate_probing = false, gate_since = NULL, gate_node = '', version = d.version + 1`,
		contextID, d.Type, string(settings))
}

// RemovePeer ends what a context has to do with an installation: nothing is sent to it and nothing is taken of it. It
// is refused while something waits to be sent; what it has stored and has not ended is asked about no more, and ends in
// error.
//
// The peer and its dispatcher go in one commit, behind the lock of the peer's row, where its version and its use are
// compared: a refusal changes nothing. What it has is ended behind that commit. A process that dies in between leaves
// that to a look, as it does what was posted by who had read the peer before.
func (s *Store) RemovePeer(ctx context.Context, by db.By, name string) error {
	lock := func(_ *db.Txn, b *pgx.Batch) { b.Queue(peerLock, by.Context, name) }
	if db.JointOf(ctx) != nil { // a part of others, as of an apply: it is theirs to commit, and a look ends what it has
		if err := s.Run(ctx, func(t *db.Txn) error {
			b := &pgx.Batch{}
			lock(t, b)
			return t.Commit(ctx, b)
		}); err != nil {
			return err
		}
		return s.remove(ctx, by, name)
	}
	err := db.Again(func() error {
		return s.DB.Together(ctx, lock, func(ctx context.Context) error { return s.remove(ctx, by, name) })
	})
	if err != nil {
		return err
	}
	if s.Removed != nil {
		if err := s.Removed(ctx); err != nil {
			s.Log.Warn("end what a removed peer has: the next look does", "peer", name, "error", err)
		}
	}
	return s.Reconfigured(ctx)
}

// remove is RemovePeer for a peer whose row is locked.
func (s *Store) remove(ctx context.Context, by db.By, name string) error {
	p, err := s.Peer(ctx, by.Context, name)
	if err != nil {
		return err
	}
	if err := by.Seen(p.Version); err != nil {
		return err
	}
	if err := s.used(ctx, s.Db(ctx), by.Context, name); err != nil {
		return err
	}
	ofType := by
	ofType.Match = nil
	switch err := s.RemoveDispatcher(ctx, ofType, p.Type(), false); {
	case fault.CodeOf(err) == "in_use":
		return fault.New(fault.Conflict, "in_use", "something waits to be sent to peer %q: let it end first, or "+
			"cancel it with POST /messages/{id}/cancel", name)
	case err != nil && fault.KindOf(err) != fault.NotFound:
		return err
	}
	return s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.peer SET removed_at = clock_timestamp(), version = version + 1
			WHERE peer_id = $1`, p.ID)
		s.AuditIn(b, by, "delete", "/peers/"+name)
		return t.Commit(ctx, b)
	})
}

// Met notes what came of a call: which installation has signed the answer, and why the peer refused it, "" where it did
// not. A peer that was met keeps its installation id. One whose settings have changed meanwhile is left alone, since
// the call was made by those before. Where nothing is new, nothing is written.
func (s *Store) Met(ctx context.Context, p *Peer, installation, code, message string) error {
	if p.RefusedCode == code && (installation == "" || p.Installation != "") {
		return nil
	}
	_, err := s.Exec(ctx, `UPDATE postern.peer SET
			installation = CASE WHEN installation = '' THEN $3 ELSE installation END,
			met_at = CASE WHEN installation = '' AND $3 <> '' THEN coalesce($6::timestamptz, clock_timestamp())
				ELSE met_at END,
			refused_at = CASE WHEN $4 <> '' THEN coalesce(refused_at, $6::timestamptz, clock_timestamp()) END,
			refused_code = $4, refused = $5
		WHERE peer_id = $1 AND version = $2`, p.ID, p.Version, installation, code, message, s.Clock())
	return err
}
