// Package addresses lists the addresses that nodes call, and what each node may call. It judges nothing: its callers
// compare both. Its statements run on any connection, for the store and for a doctor that has no store.
package addresses

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Address is one that nodes call, and what calls it.
type Address struct {
	Context string
	Object  string // as levers name it, such as dispatchers/PAY
	Type    string // of a dispatcher: which transactions go there; "" for other objects
	URL     string
}

// allSQL lists the addresses of all objects that are called and neither paused nor disabled. Callbacks are left out:
// each belongs to one transaction.
const allSQL = `
	SELECT x.name, a.object, a.type, a.url
	FROM (
		SELECT context_id, 'dispatchers/' || type AS object, type, settings->>'worker_url' AS url
		FROM postern.dispatcher
		WHERE removed_at IS NULL
		UNION ALL
		SELECT context_id, 'senders/' || account, '', worker_url
		FROM postern.sender
		WHERE removed_at IS NULL
		UNION ALL
		SELECT context_id, 'subscriptions/' || name, '', url
		FROM postern.subscription
		WHERE removed_at IS NULL AND kind = 'webhook' AND enabled
		UNION ALL
		SELECT context_id, 'tools/' || fqn, '', url
		FROM postern.tool
		WHERE removed_at IS NULL
		UNION ALL
		SELECT context_id, 'sources/' || name, '', url
		FROM postern.source
		WHERE removed_at IS NULL AND kind <> 'push' AND state <> 'paused'
		UNION ALL
		SELECT context_id, 'peers/' || name, '', url
		FROM postern.peer
		WHERE removed_at IS NULL
		UNION ALL
		SELECT context_id, 'domains/' || name, '', settings->>'service_url'
		FROM postern.domain
		WHERE removed_at IS NULL AND NOT paused
	) a
	JOIN postern.context x USING (context_id)
	WHERE a.url ~ '^[a-z]+://'
	ORDER BY x.name, a.object
	LIMIT $1`

// most is how many addresses are looked at: more differ by account, and not by host.
const most = 10000

// All lists the addresses that nodes call.
func All(ctx context.Context, q Querier) ([]Address, error) {
	rows, err := q.Query(ctx, allSQL, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Address])
}

// Allowance says what a node may call besides public addresses.
type Allowance struct {
	Node     string
	CIDRs    []string
	Types    []string // that it works on; empty: all
	Draining bool     // it begins no call
}

// Takes says whether the node begins calls of a type.
func (a Allowance) Takes(typ string) bool {
	return !a.Draining && (len(a.Types) == 0 || slices.Contains(a.Types, typ))
}

// Prefixes are the ranges of the allowance.
func (a Allowance) Prefixes() (list []netip.Prefix) {
	for _, s := range a.CIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// Allowances lists what the nodes that live may call. A node that has not told it yet is left out. now is nil where the
// clock of the database counts.
func Allowances(ctx context.Context, q Querier, now *time.Time) ([]Allowance, error) {
	rows, err := q.Query(ctx, `
		SELECT name, worker_allow_cidr, types, draining
		FROM postern.node
		WHERE dead_at IS NULL
			AND heartbeat_at + ttl > coalesce($1::timestamptz, clock_timestamp())
			AND worker_allow_cidr IS NOT NULL
		ORDER BY name, node_id`, now)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Allowance])
}
