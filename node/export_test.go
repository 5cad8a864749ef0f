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
