package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// The arms of the digest for one scope, kind and type, and keys after $3 up to and
// with $4. Each must hold what its arm of digestQuery does.
const (
	headRangeQuery = `
		SELECT id AS key, 0 AS revision, row_hash AS h FROM artifact
		WHERE audience = 'scope' AND scope = $1 AND type = $2 AND id > $3 AND id <= $4`
	revisionRangeQuery = `
		SELECT r.id AS key, r.revision, r.row_hash AS h FROM artifact_revision r
		WHERE r.scope = $1 AND r.type = $2 AND r.id > $3 AND r.id <= $4
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = r.type AND n.id = r.id AND n.audience = 'participants')`
	linkRangeQuery = `
		SELECT l.id AS key, 0 AS revision, l.row_hash AS h FROM link l
		WHERE l.scope = $1 AND $2 = 'kg_edge' AND l.id > $3 AND l.id <= $4
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = l.from_type AND n.id = l.from_id AND n.audience = 'participants')
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = l.to_type AND n.id = l.to_id AND n.audience = 'participants')`
	signalRangeQuery = `
		SELECT s.id AS key, 0 AS revision, s.row_hash AS h FROM signal s
		WHERE s.scope = $1 AND $2 = 'signal' AND s.id > $3 AND s.id <= $4
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = s.type AND n.id = s.artifact AND n.audience = 'participants')`
	eventRangeQuery = `
		SELECT e.seq AS key, 0 AS revision, sha256(convert_to(concat_ws(E'\n',
			e.seq::text, e.type, e.ref, e.actor_id, (extract(epoch FROM e.at) * 1000)::bigint::text, e.payload), 'UTF8')) AS h
		FROM event e
		WHERE e.class = 'public' AND e.scope = $1 AND e.type = $2 AND e.seq > $3::bigint AND e.seq <= $4::bigint`
)

// rangeQuery returns the arm of a range, and its arguments.
func rangeQuery(r *replicate.KeyRange) (query string, args []any, err error) {
	query, ok := map[string]string{
		replicate.KindArtifact: headRangeQuery, replicate.KindRevision: revisionRangeQuery, replicate.KindLink: linkRangeQuery,
		replicate.KindSignal: signalRangeQuery, replicate.KindEvent: eventRangeQuery,
	}[r.Kind]
	if !ok {
		return "", nil, artifact.Invalid(artifact.Problem{Path: "/kind", Constraint: "enum", Message: "the digest has no rows of this kind", Value: artifact.Received(r.Kind)})
	}
	if r.Kind == replicate.KindEvent {
		after, to := r.Seqs()
		return query, []any{r.Scope, r.Type, after, to}, nil
	}
	to := r.To
	if to == "" {
		to = "\U0010ffff" // after all ids
	}
	return query, []any{r.Scope, r.Type, r.After, to}, nil
}

// maxBuckets bounds the answer to one question.
const maxBuckets = 1024

// Buckets divides a range into at most n parts of about as many keys each, as the
// tables are now, and returns what each came to at a seq.
func (h *Hub) Buckets(ctx context.Context, r replicate.KeyRange, n int, at artifact.Seq) (out replicate.Buckets, err error) {
	out = replicate.Buckets{Seq: at, Buckets: []replicate.Bucket{}}
	err = h.ranged(ctx, &r, at, func(tx pgx.Tx, query string, args []any) error {
		rows, err := tx.Query(ctx, `
			SELECT max(key)::text, sum(n)::bigint, bit_xor(x)::text
			FROM (
				SELECT key, n, x, ntile($5) OVER (ORDER BY key) AS bucket
				FROM (
					SELECT key, count(*) AS n, bit_xor(('x' || encode(h, 'hex'))::bit(256)) AS x
					FROM (`+query+`) AS rows GROUP BY key
				) AS keys
			) AS parts
			GROUP BY bucket ORDER BY bucket`, append(args, min(max(n, 1), maxBuckets))...)
		if err != nil {
			return err
		}
		var b replicate.Bucket
		var bits string
		_, err = pgx.ForEachRow(rows, []any{&b.To, &b.Count, &bits}, func() error {
			b.XOR = fromBits(bits)
			out.Buckets = append(out.Buckets, b)
			return nil
		})
		return err
	}, func(k replicate.Thing, was, is artifact.Hash) {
		if len(out.Buckets) == 0 {
			out.Buckets = append(out.Buckets, replicate.Bucket{})
		}
		// The last one goes on to the end of the range.
		i := slices.IndexFunc(out.Buckets[:len(out.Buckets)-1], func(b replicate.Bucket) bool {
			return (&replicate.KeyRange{DigestKey: r.DigestKey, To: b.To}).Holds(k.Key)
		})
		if i < 0 {
			i = len(out.Buckets) - 1
		}
		sum := replicate.DigestSum{Count: out.Buckets[i].Count, XOR: out.Buckets[i].XOR}
		if !is.IsZero() {
			sum.Remove(is)
		}
		if !was.IsZero() {
			sum.Add(was)
		}
		out.Buckets[i].Count, out.Buckets[i].XOR = sum.Count, sum.XOR
	})
	if len(out.Buckets) == 0 {
		out.Buckets = append(out.Buckets, replicate.Bucket{})
	}
	out.Buckets[len(out.Buckets)-1].To = r.To
	return out, err
}

// maxListing bounds how many things one answer names.
const maxListing = 20_000

// Listing returns the things of a range, with the hashes of their rows, at a seq.
func (h *Hub) Listing(ctx context.Context, r replicate.KeyRange, at artifact.Seq) (out replicate.Listing, err error) {
	hashes := make(map[replicate.Thing]artifact.Hash)
	err = h.ranged(ctx, &r, at, func(tx pgx.Tx, query string, args []any) error {
		rows, err := tx.Query(ctx, `SELECT key::text, revision, h FROM (`+query+`) AS rows LIMIT $5`, append(args, maxListing+1)...)
		if err != nil {
			return err
		}
		var t replicate.Thing
		var hash []byte
		_, err = pgx.ForEachRow(rows, []any{&t.Key, &t.Revision, &hash}, func() error {
			hashes[t] = artifact.Hash(hash)
			return nil
		})
		if err == nil && len(hashes) > maxListing {
			err = artifact.Invalid(artifact.Problem{Path: "/to", Constraint: "max_items", Message: fmt.Sprintf("the range holds more than %d rows; ask for its buckets", maxListing)})
		}
		return err
	}, func(t replicate.Thing, was, _ artifact.Hash) {
		if hashes[t] = was; was.IsZero() {
			delete(hashes, t)
		}
	})
	out = replicate.Listing{Seq: at, Rows: make([]replicate.HashedThing, 0, len(hashes))}
	for t, hash := range hashes {
		out.Rows = append(out.Rows, replicate.HashedThing{Thing: t, Hash: hash})
	}
	slices.SortFunc(out.Rows, func(a, b replicate.HashedThing) int {
		if len(a.Key) != len(b.Key) && r.Kind == replicate.KindEvent {
			return len(a.Key) - len(b.Key)
		}
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return a.Revision - b.Revision
	})
	return out, err
}

// ranged reads a range from the tables, and then takes back, from the last to the
// first, what the log changed of it after a seq: undo is told of each thing what its
// row was before and is after, zero for none. One such reading is under way at a
// time.
func (h *Hub) ranged(ctx context.Context, r *replicate.KeyRange, at artifact.Seq,
	read func(tx pgx.Tx, query string, args []any) error, undo func(t replicate.Thing, was, is artifact.Hash),
) error {
	query, args, err := rangeQuery(r)
	if err != nil {
		return err
	}
	release, err := h.digests.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	type change struct {
		thing   replicate.Thing
		was, is artifact.Hash
	}
	var changes []change
	err = h.snapshot(ctx, func(tx pgx.Tx, head artifact.Seq) error {
		if err := h.checkRoll(ctx, tx, at, head, head); err != nil {
			return err
		}
		if err := read(tx, query, args); err != nil {
			return err
		}
		return rowsBetween(ctx, tx, at, head, func(row *replicate.Row) error {
			if row.Kind == replicate.KindEventFloor && r.Kind == replicate.KindEvent && row.Scope == r.Scope {
				return outOfRange("events of the scope that were there then are no longer kept", row.Seq, head)
			}
			if k, t, ok := row.Thing(); ok && k == r.DigestKey && r.Holds(t.Key) && (row.Op != replicate.Emit) {
				changes = append(changes, change{t, row.PrevHash, row.Hash})
			}
			if k, t, ok := row.EventThing(); ok && k == r.DigestKey && r.Holds(t.Key) {
				changes = append(changes, change{t, artifact.Hash{}, row.EventHash()})
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("digest of a range: %w", err)
	}
	for _, c := range slices.Backward(changes) {
		undo(c.thing, c.was, c.is)
	}
	return nil
}
