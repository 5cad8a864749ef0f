package node

import "context"

// IndexSome indexes one batch of what the index lacks.
func (s *Store) IndexSome(ctx context.Context) error {
	return s.amend(ctx, func(ctx context.Context) error { return s.indexSome(ctx, indexBatch) })
}

// The statements of reads, for handlers written by hand.
var (
	GetSQL    = getSQL
	SearchSQL = searchSQL
)
