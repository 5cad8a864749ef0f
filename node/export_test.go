package node

import (
	"context"

	"github.com/scidex-ai/substrate/rank"
)

// IndexSome indexes one batch of what the index lacks.
func (s *Store) IndexSome(ctx context.Context) error {
	return s.amend(ctx, func(ctx context.Context) error { return s.indexSome(ctx, indexBatch) })
}

// The statements of reads, for handlers written by hand.
var (
	GetSQL    = getSQL
	SearchSQL = searchSQL
)

// UseModels has searches of the store ask these.
func (s *Store) UseModels(m *rank.Models) { s.models = m }

// Tidy merges all that is to be merged of the search index.
func (s *Store) Tidy(ctx context.Context) error {
	for {
		if more, err := s.tidy(ctx); !more || err != nil {
			return err
		}
	}
}

// SearchParts counts the parts of the search index.
func (s *Store) SearchParts(ctx context.Context) (n int, err error) {
	return n, s.conn.QueryRowContext(ctx, `SELECT count(DISTINCT segid) FROM search_index_idx`).Scan(&n)
}

// CheckSearch looks whether the search index is whole.
func (s *Store) CheckSearch(ctx context.Context) error {
	_, err := s.conn.ExecContext(ctx, `INSERT INTO search_index (search_index) VALUES ('integrity-check')`)
	return err
}
