package hub

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// diff answers the verb of that name.
func (h *Hub) diff(ctx context.Context, in verb.DiffRequest) (out verb.DiffResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	var sides [2]verb.GetResponse
	err = h.oneState(ctx, func(tx pgx.Tx) error {
		for i, ref := range []artifact.Ref{in.RefA, in.RefB} {
			if err := h.read(ctx, tx, c, &verb.GetRequest{Ref: ref}, &sides[i]); err != nil {
				return h.absent(fmt.Errorf("read %s: %w", ref, err), ref, [...]string{"/ref_a", "/ref_b"}[i])
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	out.AsOf = sides[0].AsOf
	return out, out.Place(sides[0].Artifact, sides[1].Artifact)
}
