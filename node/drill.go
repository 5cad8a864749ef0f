package node

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	// drillBuckets is how many parts a range is divided into, and drillRows how many
	// rows are compared one by one.
	drillBuckets = 256
	drillRows    = 2000
)

// errTooMuch reports that so much differs that a new copy is the shorter way.
var errTooMuch = fmt.Errorf("more than %d rows differ", maxFindings)

// The rows of a range with their hashes, after ?3 and up to and with ?4.
const (
	headHashesSQL     = `SELECT id, 0, row_hash FROM artifact WHERE scope = ?1 AND type = ?2 AND id > ?3 AND id <= ?4 ORDER BY id`
	revisionHashesSQL = `SELECT id, revision, row_hash FROM artifact_revision
		WHERE scope = ?1 AND type = ?2 AND id > ?3 AND id <= ?4 ORDER BY id, revision`
	linkHashesSQL   = `SELECT id, 0, row_hash FROM link WHERE scope = ?1 AND ?2 = 'kg_edge' AND id > ?3 AND id <= ?4 ORDER BY id`
	signalHashesSQL = `SELECT id, 0, row_hash FROM signal WHERE scope = ?1 AND ?2 = 'signal' AND id > ?3 AND id <= ?4 ORDER BY id`
	eventHashesSQL  = `SELECT seq, type, ref, scope, actor_id, actor_kind, at, payload FROM event
		WHERE scope = ?1 AND type = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq`
)

// hashesIn passes the things of a range to f, in order.
func hashesIn(ctx context.Context, tx *sql.Tx, r *replicate.KeyRange, f func(replicate.HashedThing)) error {
	to := r.To
	if to == "" {
		to = "\U0010ffff" // after all ids
	}
	args := []any{r.Scope, r.Type, r.After, to}
	if r.Kind == replicate.KindEvent {
		after, to := r.Seqs()
		return eachOf(ctx, tx, eventHashesSQL, []any{r.Scope, r.Type, after, to}, func(rows *sql.Rows) error {
			_, t, hash, err := scanEventHash(rows)
			f(replicate.HashedThing{Thing: t, Hash: hash})
			return err
		})
	}
	query := map[string]string{
		replicate.KindArtifact: headHashesSQL, replicate.KindRevision: revisionHashesSQL,
		replicate.KindLink: linkHashesSQL, replicate.KindSignal: signalHashesSQL,
	}[r.Kind]
	return eachOf(ctx, tx, query, args, func(rows *sql.Rows) error {
		var h replicate.HashedThing
		var raw sql.RawBytes
		if err := rows.Scan(&h.Key, &h.Revision, &raw); err != nil {
			return err
		}
		copy(h.Hash[:], raw)
		f(h)
		return nil
	})
}

// A drill finds the rows that differ between replica and hub. Each step compares
// both at one seq, which need not be that of the step before: what was found to
// differ is found again, or is equal by now.
type drill struct {
	store *Store
	feed  *replicate.Client
	asked int // questions to the hub
	out   []Difference
}

// A Difference is a row that is not as the hub has it.
type Difference struct {
	replicate.DigestKey
	replicate.Thing
	What    string `json:"what"`              // missing, extra or other; or how it is not what its hash says
	Outcome string `json:"outcome,omitempty"` // mended, or why not

	// agreed says that the hub holds what the log told the replica to keep count of.
	agreed bool
}

// into finds what differs under a key.
func (d *drill) into(ctx context.Context, k replicate.DigestKey, rows int64) error {
	r := replicate.KeyRange{DigestKey: k}
	if rows <= drillRows {
		return d.list(ctx, r)
	}
	return d.divide(ctx, r)
}

// divide compares the parts of a range, and goes on into those that differ.
func (d *drill) divide(ctx context.Context, r replicate.KeyRange) error {
	var theirs replicate.Buckets
	own := make([]replicate.DigestSum, 0, drillBuckets)
	err := d.store.reading(ctx, func(tx *sql.Tx, at replicate.Position) (err error) {
		d.asked++
		if theirs, err = d.feed.Buckets(ctx, at, r, drillBuckets); err != nil {
			return err
		}
		if len(theirs.Buckets) == 0 || theirs.Seq != at.Seq {
			return errors.New("the hub's answer is not what was asked for")
		}
		after := r.After
		for i := range theirs.Buckets {
			part := replicate.KeyRange{DigestKey: r.DigestKey, After: after, To: theirs.Buckets[i].To}
			var sum replicate.DigestSum
			if err := hashesIn(ctx, tx, &part, func(h replicate.HashedThing) { sum.Add(h.Hash) }); err != nil {
				return err
			}
			own = append(own, sum)
			after = part.To
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("compare %s of %s: %w", r.Kind, r.Type, err)
	}
	// Neighbours that differ are listed together while they are few.
	after := r.After
	var open *replicate.KeyRange
	var rows int64
	list := func() (err error) {
		if open != nil {
			err = d.list(ctx, *open)
		}
		open, rows = nil, 0
		return err
	}
	for i, b := range theirs.Buckets {
		part := replicate.KeyRange{DigestKey: r.DigestKey, After: after, To: b.To}
		after = b.To
		size := max(b.Count, own[i].Count)
		equal := b.Count == own[i].Count && b.XOR == own[i].XOR
		if open != nil && (equal || rows+size > drillRows) {
			if err := list(); err != nil {
				return err
			}
		}
		switch {
		case equal:
		case size > drillRows && len(theirs.Buckets) > 1: // else it is but one key's
			if err := d.divide(ctx, part); err != nil {
				return err
			}
		case open == nil:
			open, rows = &part, size
		default:
			open.To, rows = part.To, rows+size
		}
	}
	return list()
}

// list compares the rows of a range.
func (d *drill) list(ctx context.Context, r replicate.KeyRange) error {
	own := make(map[replicate.Thing]artifact.Hash)
	var theirs replicate.Listing
	err := d.store.reading(ctx, func(tx *sql.Tx, at replicate.Position) (err error) {
		d.asked++
		if theirs, err = d.feed.Listing(ctx, at, r); err != nil {
			return err
		}
		return hashesIn(ctx, tx, &r, func(h replicate.HashedThing) { own[h.Thing] = h.Hash })
	})
	if err != nil {
		return fmt.Errorf("compare %s of %s: %w", r.Kind, r.Type, err)
	}
	for _, h := range theirs.Rows {
		mine, held := own[h.Thing]
		delete(own, h.Thing)
		switch {
		case !held:
			d.out = append(d.out, Difference{DigestKey: r.DigestKey, Thing: h.Thing, What: "missing"})
		case mine != h.Hash:
			d.out = append(d.out, Difference{DigestKey: r.DigestKey, Thing: h.Thing, What: "other"})
		}
	}
	for t := range own {
		d.out = append(d.out, Difference{DigestKey: r.DigestKey, Thing: t, What: "extra"})
	}
	if len(d.out) > maxFindings {
		return errTooMuch
	}
	return nil
}
