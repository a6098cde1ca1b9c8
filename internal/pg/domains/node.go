package domains

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/peers"
)

// NoNode refuses to remove a peer that is a node of domains, or that has a permit there for an intent since it was one,
// and names them, with the intents whose public transactions it may have. Put of a domain locks the rows of its peers:
// it comes before this and is seen, or finds no peer.
func (s *Store) NoNode(ctx context.Context, q peers.Querier, contextID int32, name string) error {
	rows, err := q.Query(ctx, `SELECT d.name, coalesce((SELECT array_agg(p.intent_id::text) FROM (
			SELECT x.intent_id FROM postern.coord_permit x
			WHERE x.domain_id = d.domain_id AND x.node = $2 AND x.closed_at IS NULL
			ORDER BY x.given_at LIMIT 10) p), '{}')
		FROM postern.domain d
		WHERE d.context_id = $1 AND d.removed_at IS NULL AND (d.settings->'nodes' ? $2 OR EXISTS (
			SELECT FROM postern.coord_permit x
			WHERE x.domain_id = d.domain_id AND x.node = $2 AND x.closed_at IS NULL))
		ORDER BY d.name
		LIMIT 10`, contextID, name)
	if err != nil {
		return db.Known(err)
	}
	var domains []string
	permits := []string{}
	var domain string
	var ids []string
	if _, err := pgx.ForEachRow(rows, []any{&domain, &ids}, func() error {
		domains, permits = append(domains, domain), append(permits, ids...)
		return nil
	}); err != nil || len(domains) == 0 {
		return db.Known(err)
	}
	return fault.New(fault.Conflict, "in_use", "peer %q is a node of domains %s, or may still send for them what it "+
		"has permits for: wait for its permits to end, or release their intents, and take it out of the nodes", name,
		strings.Join(domains, ", ")).With("domains", domains).With("open_permits", permits)
}

// PeerWaits is true of a peer p for which messages of a domain wait (peers.Store.Waits).
const PeerWaits = `EXISTS (SELECT FROM postern.domain d
	JOIN postern.coord_out o USING (domain_id)
	WHERE d.context_id = p.context_id AND o.node = p.name)`

// knowsNodes refuses nodes that are no peers of the context, or that it cannot call. The rows of the peers stay locked
// until the commit: one that is about to be removed is refused here, or finds the domain.
func (s *Store) knowsNodes(ctx context.Context, t *db.Txn, contextID int32, set Settings) error {
	if len(set.Nodes) < 2 {
		return nil
	}
	urls := map[string]string{}
	b := &pgx.Batch{}
	b.Queue(`SELECT p.name, p.url FROM postern.peer p
		WHERE p.context_id = $1 AND p.name = ANY ($2) AND p.removed_at IS NULL
		ORDER BY p.name
		FOR SHARE`, contextID, set.Nodes).Query(func(rows pgx.Rows) error {
		var name, url string
		_, err := pgx.ForEachRow(rows, []any{&name, &url}, func() error { urls[name] = url; return nil })
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	for i, node := range set.Nodes {
		url, known := urls[node]
		switch at := "/nodes/" + itoa(i); {
		case node == set.Self && known:
			return fault.At("/self", "self %q: it is the name of a peer, and a node has one name in all installations",
				node)
		case node == set.Self:
		case !known:
			return fault.At(at, "node %q is no peer of this context: PUT /peers/%[1]s first, or name this one alone",
				fault.Clip(node))
		case url == "":
			return fault.At(at, "node %q is a peer without a url, and cannot be told anything: PATCH /peers/%[1]s",
				fault.Clip(node))
		}
	}
	return nil
}
