package node

import (
	"context"

	"github.com/scidex-ai/substrate/artifact"
)

const breakingSQL = `SELECT document FROM schema_registry WHERE document LIKE '%"compatibility":"breaking"%'`

// loadUpgrades reads how contents of earlier schema versions become current ones.
func (s *Store) loadUpgrades(ctx context.Context) error {
	rows, err := s.conn.QueryContext(ctx, breakingSQL)
	if err != nil {
		return err
	}
	defer rows.Close()
	upgrades := new(artifact.Upgrades)
	for rows.Next() {
		var document []byte
		if err := rows.Scan(&document); err != nil {
			return err
		}
		if err := upgrades.Add(document); err != nil {
			return err
		}
	}
	s.upgrades.Store(upgrades)
	return rows.Err()
}
