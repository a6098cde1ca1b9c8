package pg

import (
	"context"
	"net/netip"

	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Allow writes into the row of a node which private ranges it may call, so that others can tell before it calls.
func (s *Store) Allow(ctx context.Context, n Node, ranges []netip.Prefix) error {
	list := []string{}
	for _, p := range ranges {
		list = append(list, p.String())
	}
	_, err := s.Pool().Exec(ctx, `
		UPDATE postern.node
		SET worker_allow_cidr = $2
		WHERE node_id = $1`, n.ID, list)
	return db.Known(err)
}

// Allowances lists what the nodes that live may call besides public addresses.
func (s *Store) Allowances(ctx context.Context) ([]addresses.Allowance, error) {
	list, err := addresses.Allowances(ctx, s.Pool(), s.LeaseNow())
	return list, db.Known(err)
}

// Addresses lists what the nodes call.
func (s *Store) Addresses(ctx context.Context) ([]addresses.Address, error) {
	list, err := addresses.All(ctx, s.Pool())
	return list, db.Known(err)
}
