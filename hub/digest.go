package hub

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// digestQuery sums up rows by scope, kind and type in one snapshot. Events are
// hashed by the recipe of [replicate.Row.EventHash]. What is for its participants
// alone is in no feed, and so in no digest. The arms that are rolled back
// afterwards are exactly those that [replicate.Sums.Apply] counts.
const digestQuery = `
	WITH hidden AS MATERIALIZED (SELECT type, id FROM artifact WHERE audience = 'participants')
	SELECT scope, kind, type, count(*), bit_xor(('x' || encode(h, 'hex'))::bit(256))::text
	FROM (
		SELECT scope, 'artifact' AS kind, type, row_hash AS h FROM artifact WHERE audience = 'scope'
		UNION ALL SELECT r.scope, 'revision', r.type, r.row_hash FROM artifact_revision r
			WHERE NOT EXISTS (SELECT FROM hidden n WHERE n.type = r.type AND n.id = r.id)
		UNION ALL SELECT l.scope, 'link', 'kg_edge', l.row_hash FROM link l
			WHERE NOT EXISTS (SELECT FROM hidden n WHERE n.type = l.from_type AND n.id = l.from_id)
				AND NOT EXISTS (SELECT FROM hidden n WHERE n.type = l.to_type AND n.id = l.to_id)
		UNION ALL SELECT s.scope, 'signal', 'signal', s.row_hash FROM signal s
			WHERE NOT EXISTS (SELECT FROM hidden n WHERE n.type = s.type AND n.id = s.artifact)
		UNION ALL SELECT scope, 'event', type, sha256(convert_to(concat_ws(E'\n',
			seq::text, type, ref, actor_id, (extract(epoch FROM at) * 1000)::bigint::text, payload), 'UTF8'))
		FROM event WHERE class = 'public'
	) AS rows
	WHERE scope = ANY ($1)
	GROUP BY scope, kind, type`

// maxRollback bounds how many rows behind the head a digest is given.
const maxRollback = 200_000

// Digest returns the digest of what followers of these scopes hold at a seq; at
// the head when at is 0. A seq in the past is reached by taking back the log's
// rows, so a follower that lags a little can be compared without waiting.
func (h *Hub) Digest(ctx context.Context, scopes []string, at artifact.Seq) (d replicate.Digest, err error) {
	sums := make(replicate.Sums)
	var head artifact.Seq
	err = pgx.BeginTxFunc(ctx, h.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, headQuery).Scan(&head); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, digestQuery, scopes)
		if err != nil {
			return err
		}
		var k replicate.DigestKey
		var count int64
		var bits string
		_, err = pgx.ForEachRow(rows, []any{&k.Scope, &k.Kind, &k.Type, &count, &bits}, func() error {
			sums[k] = &replicate.DigestSum{DigestKey: k, Count: count, XOR: fromBits(bits)}
			return nil
		})
		return err
	})
	if err != nil {
		return d, fmt.Errorf("digest: %w", err)
	}
	if at == 0 {
		return sums.Digest(head), nil
	}
	if err := h.checkRollback(ctx, at, head); err != nil {
		return d, err
	}
	return h.rollBack(ctx, sums, scopes, at, head)
}

// checkRollback refuses a seq that the rows after it do not all lead back to:
// beyond the head, too far back, or trimmed.
func (h *Hub) checkRollback(ctx context.Context, at, head artifact.Seq) error {
	first, _, err := bounds(ctx, h.db)
	if err != nil {
		return err
	}
	const query = `SELECT count(*) FROM (SELECT FROM feed.change WHERE seq > $1 ORDER BY seq LIMIT $2) AS c`
	var rows int
	if err := h.db.QueryRow(ctx, query, int64(at), maxRollback+1).Scan(&rows); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	if at > head || at < first-1 || rows > maxRollback {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonSeqOutOfRange,
			Message: fmt.Sprintf("a digest is given for the last %d changes that the log keeps, up to seq %d", maxRollback, head),
		}
	}
	return nil
}

// rollBack takes back the rows after at, up to and with head.
func (h *Hub) rollBack(ctx context.Context, sums replicate.Sums, scopes []string, at, head artifact.Seq) (d replicate.Digest, err error) {
	wanted := make(map[string]bool, len(scopes))
	for _, s := range scopes {
		wanted[s] = true
	}
	for cursor := at; cursor < head; {
		rows, err := readLog(ctx, h.db, cursor, int(min(head-cursor, pumpRead)))
		if err != nil {
			return d, err
		}
		if len(rows) == 0 {
			return d, fmt.Errorf("digest: the log ends at %d, before %d", cursor, head)
		}
		for i := range rows {
			r := &rows[i]
			if cursor = r.Seq; cursor > head {
				break // committed since
			}
			if r.class == replicate.Public && wanted[r.Scope] {
				sums.Apply(&r.Row, true)
			}
		}
	}
	return sums.Digest(at), nil
}

// fromBits reads the text form of a bit string of 256 bits.
func fromBits(bits string) (h artifact.Hash) {
	for i := range len(bits) {
		if i/8 < len(h) && bits[i] == '1' {
			h[i/8] |= 1 << (7 - i%8)
		}
	}
	return h
}
