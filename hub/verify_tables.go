package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// The queries of a check read $2 rows of a table after a key, which begins with
// $3, in the order of the key, with what else must be known of each: the key, and
// whether the log tells of it, if it was written after $1.
const (
	checkRevisionsQuery = `
		SELECT r.type, r.id, r.revision, r.scope, r.content_hash, r.schema_version, r.title, r.state, r.note, r.provenance,
			r.additional_signatures, r.redaction, r.created_at, r.created_by, r.row_hash, r.content,
			ARRAY[r.type, r.id, r.revision::text], r.created_at <= $1 OR ` + loggedAs + `r.type || ':' || r.id AND c.kind = 'revision' AND c.revision = r.revision),
			r.redaction IS NOT NULL AND (r.content <> '{}' OR r.title <> '` + redactedTitle + `' OR r.note <> ''),
			EXISTS (SELECT FROM artifact a WHERE a.type = r.type AND a.id = r.id AND a.revision >= r.revision)
		FROM (
			SELECT * FROM artifact_revision WHERE (type, id, revision) > ($3, $4, $5) ORDER BY type, id, revision LIMIT $2
		) r
		ORDER BY r.type, r.id, r.revision`
	checkHeadsQuery = `
		SELECT` + headColumns + `,
			ARRAY[a.type, a.id], a.updated_at <= $1 OR ` + loggedAs + `a.type || ':' || a.id AND c.kind = 'artifact'),
			r.revision IS NOT NULL,
			(r.scope, r.content_hash, r.schema_version, r.title, r.state) IS NOT DISTINCT FROM (a.scope, a.content_hash, a.schema_version, a.title, a.state),
			(SELECT count(*) FROM artifact_revision n WHERE n.type = a.type AND n.id = a.id),
			a.superseded_by = '' OR EXISTS (
				SELECT FROM artifact n WHERE n.type = split_part(a.superseded_by, ':', 1) AND n.id = substr(a.superseded_by, strpos(a.superseded_by, ':') + 1))
		FROM (SELECT * FROM artifact WHERE (type, id) > ($3, $4) ORDER BY type, id LIMIT $2) a
		LEFT JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		ORDER BY a.type, a.id`
	checkLinksQuery = `
		SELECT l.id, l.from_type, l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by, l.row_hash,
			ARRAY[l.id], l.created_at <= $1 OR ` + loggedAs + `'kg_edge:' || l.id AND c.kind = 'link'),
			l.to_type || ':' || l.to_id, coalesce(f.scope, ''), ` + toScope + `,
			l.to_type = 'kg_edge' AND EXISTS (SELECT FROM link_retraction x WHERE x.id = l.to_id),
			EXISTS (SELECT FROM link_retraction x WHERE x.id = l.id),
			strpos(l.to_ref, '@') = 0 OR l.to_type IN ('kg_edge', 'signal') OR EXISTS (
				SELECT FROM artifact_revision r WHERE r.type = l.to_type AND r.id = l.to_id AND encode(r.content_hash, 'hex') = right(l.to_ref, 64))
		FROM (SELECT * FROM link WHERE id > $3 ORDER BY id LIMIT $2) l
		LEFT JOIN artifact f ON f.type = l.from_type AND f.id = l.from_id` + joinTo + `
		ORDER BY l.id`
	checkSignalsQuery = `
		SELECT s.id, s.type, s.artifact, s.scope, s.kind, s.dimension, s.voter, s.voter_kind, s.value::text, s.weight::text, s.reason, s.metadata,
			s.created_at, s.created_by, s.row_hash, s.aggregate,
			ARRAY[s.id], s.created_at <= $1 OR ` + loggedAs + `'signal:' || s.id AND c.kind = 'signal'),
			coalesce(a.scope, '')
		FROM (SELECT * FROM signal WHERE id > $3 ORDER BY id LIMIT $2) s
		LEFT JOIN artifact a ON a.type = s.type AND a.id = s.artifact
		ORDER BY s.id`
	loggedAs = `EXISTS (SELECT FROM feed.change c WHERE c.op = 'P' AND c.data IS NOT NULL AND c.ref = `
)

// A checkedTable is a table whose rows are made anew, hashed, and held against what
// belongs to them.
type checkedTable struct {
	kind  string
	query string
	parse func(key []string) ([]any, error)
	scan  func(pgx.CollectableRow) (storedRow, error)
	// more are the columns that a row has beside those that scan reads, the key and
	// whether it is logged; judge holds them against the row.
	more  []any
	judge func(s *storedRow, fault func(format string, args ...any))
}

// moreColumns is a row with columns behind those that a scan knows of.
type moreColumns struct {
	pgx.CollectableRow
	more []any
}

func (r *moreColumns) Scan(dest ...any) error {
	return r.CollectableRow.Scan(append(dest, r.more...)...)
}

// table reads a table piece by piece.
func (v *storeVerifier) table(ctx context.Context, t *checkedTable) error {
	var key []string
	for more := true; more; {
		args, err := t.parse(key)
		if err != nil {
			return err
		}
		n := 0
		if err := v.snapshot(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, t.query, append([]any{v.logged, verifyRows}, args...)...)
			if err != nil {
				return err
			}
			defer rows.Close()
			for ; rows.Next(); n++ {
				if key, err = v.row(t, rows); err != nil {
					return err
				}
			}
			return rows.Err()
		}); err != nil {
			return err
		}
		v.read(t.kind, n)
		more = n == verifyRows
	}
	return nil
}

// row checks one row and returns its key.
func (v *storeVerifier) row(t *checkedTable, rows pgx.Rows) (key []string, err error) {
	var logged bool
	s, unread := t.scan(&moreColumns{rows, append([]any{&key, &logged}, t.more...)})
	if key == nil {
		return nil, unread
	}
	f := Fault{Kind: t.kind, Ref: strings.Join(key[:min(2, len(key))], ":")}
	switch {
	case t.kind == replicate.KindLink:
		f.Ref = replicate.LinkType + ":" + f.Ref
	case t.kind == replicate.KindSignal:
		f.Ref = replicate.SignalType + ":" + f.Ref
	case len(key) == 3:
		if f.Revision, err = strconv.Atoi(key[2]); err != nil {
			return nil, err
		}
	}
	fault := func(format string, args ...any) {
		f.What = fmt.Sprintf(format, args...)
		v.note(f)
	}
	switch {
	case unread != nil: // such as JSON that is none
		fault("it cannot be read: %v", unread)
	case s.Hash != s.stored:
		fault("its row is not what its hash says: %.16s, made anew %.16s", hexOf(s.stored), hexOf(s.Hash))
	case s.faulty:
		fault("its content is not what its content hash says")
	}
	if !logged {
		fault("no row of the log tells of it")
	}
	if unread == nil {
		t.judge(&s, fault)
	}
	return key, nil
}

func hexOf(h artifact.Hash) string { return strings.TrimPrefix(h.String(), "sha256:") }

func revisionsTable() *checkedTable {
	var spoiled, headed bool
	return &checkedTable{
		kind: replicate.KindRevision, query: checkRevisionsQuery, parse: keyOf(2, 1), scan: scanStoredRevision, more: []any{&spoiled, &headed},
		judge: func(_ *storedRow, fault func(string, ...any)) {
			if spoiled {
				fault("it is marked as redacted and holds content, a title or a note")
			}
			if !headed {
				fault("no artifact has this version")
			}
		},
	}
}

func headsTable() *checkedTable {
	var has, same, replaced bool
	var count int
	return &checkedTable{
		kind: replicate.KindArtifact, query: checkHeadsQuery, parse: keyOf(2, 0), scan: scanStoredHead, more: []any{&has, &same, &count, &replaced},
		judge: func(s *storedRow, fault func(string, ...any)) {
			switch {
			case !has:
				fault("its latest version, revision %d, is missing", s.Revision)
			case !same:
				fault("it is not what its latest version, revision %d, says", s.Revision)
			}
			if count != s.Revision {
				fault("it has %d versions and should have %d", count, s.Revision)
			}
			if !replaced {
				fault("what it is superseded by is missing")
			}
		},
	}
}

func linksTable() *checkedTable {
	var to, fromScope, toScope string
	var toRetracted, retracted, pinned bool
	return &checkedTable{
		kind: replicate.KindLink, query: checkLinksQuery, parse: keyOf(1, 0), scan: scanStoredLink,
		more: []any{&to, &fromScope, &toScope, &toRetracted, &retracted, &pinned},
		judge: func(s *storedRow, fault func(string, ...any)) {
			var l replicate.Link
			if err := json.Unmarshal(s.Data, &l); err != nil {
				fault("%v", err)
				return
			}
			if ref, err := artifact.ParseRef(l.To); err != nil || ref.Current().String() != to {
				fault("it leads to %s, and its ref says %s", to, l.To)
			}
			switch {
			case fromScope == "":
				fault("%s, from which it leads, is missing", l.From)
			case toScope == "" && !toRetracted:
				fault("%s, to which it leads, is missing", to)
			case toScope != "":
				if scope, err := narrower(fromScope, toScope); err != nil || scope != l.Scope {
					fault("it is in the scope %s, its ends in %s and %s", l.Scope, fromScope, toScope)
				}
			}
			if !pinned {
				fault("the version %s, to which it leads, is missing", l.To)
			}
			if retracted {
				fault("it was taken back and is there")
			}
		},
	}
}

func signalsTable() *checkedTable {
	var scope string
	return &checkedTable{
		kind: replicate.KindSignal, query: checkSignalsQuery, parse: keyOf(1, 0), scan: scanStoredSignal, more: []any{&scope},
		judge: func(s *storedRow, fault func(string, ...any)) {
			switch scope {
			case s.Scope:
			case "":
				fault("the artifact that it is on is missing")
			default:
				fault("it is in the scope %s, its artifact in %s", s.Scope, scope)
			}
		},
	}
}

const (
	// pageEndQuery finds the last of the $3 artifacts after one.
	pageEndQuery = `
		SELECT type, id, n FROM (
			SELECT type, id, row_number() OVER (ORDER BY type, id) AS n FROM artifact WHERE (type, id) > ($1, $2) ORDER BY type, id LIMIT $3
		) a
		ORDER BY n DESC LIMIT 1`
	keptSumsQuery = `
		SELECT type, artifact, kind, dimension, n, voters, sum::text, sum_sq::text FROM signal_aggregate
		WHERE (type, artifact) > ($1, $2) AND (type, artifact) <= ($3, $4)`
	countedSignalsQuery = `
		SELECT type, artifact, kind, dimension, voter, value::text FROM signal
		WHERE (type, artifact) > ($1, $2) AND (type, artifact) <= ($3, $4)
		ORDER BY type, artifact, kind, dimension, id`
	strayQuery = `
		SELECT g.type || ':' || g.artifact, 'sums are kept of it, and it is missing'
		FROM signal_aggregate g WHERE NOT EXISTS (SELECT FROM artifact a WHERE a.type = g.type AND a.id = g.artifact)
		UNION ALL
		SELECT 'paper:' || k.id, k.kind || ' ' || k.key || ' leads to it, and it is missing'
		FROM paper_key k WHERE NOT EXISTS (SELECT FROM artifact a WHERE a.type = 'paper' AND a.id = k.id AND a.scope = k.scope)`
	typesQuery = `
		SELECT 'schema:' || coalesce(a.id, g.artifact_type),
			CASE WHEN a.id IS NULL THEN 'the type is registered, and its artifact is missing'
				WHEN g.artifact_type IS NULL THEN 'it is no registered type'
				ELSE 'its registered schema is not what its artifact says' END
		FROM (SELECT * FROM schema_registry WHERE is_current) g
		FULL JOIN (
			SELECT a.id, r.content FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
			WHERE a.type = 'schema'
		) a ON a.id = g.artifact_type
		WHERE a.content IS DISTINCT FROM g.document`
)

// aggregates recounts the sums that are kept of signals, artifact by artifact.
func (v *storeVerifier) aggregates(ctx context.Context) error {
	var after, to artifact.Ref
	for more := true; more; after = to {
		n := 0
		if err := v.snapshot(ctx, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, pageEndQuery, after.Type, after.ID, verifyRows).Scan(&to.Type, &to.ID, &n)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
			return v.recount(ctx, tx, after.Type, after.ID, to.Type, to.ID)
		}); err != nil {
			return err
		}
		v.read(faultAggregate, n)
		more = n == verifyRows
	}
	return v.snapshot(ctx, func(tx pgx.Tx) error { return v.faults(ctx, tx, faultAggregate, strayQuery) })
}

// recount compares the sums of artifacts between two keys with their signals.
func (v *storeVerifier) recount(ctx context.Context, tx pgx.Tx, keys ...any) error {
	rows, err := tx.Query(ctx, keptSumsQuery, keys...)
	if err != nil {
		return err
	}
	kept := make(map[signalKey]artifact.Aggregate)
	var k signalKey
	var n, voters int64
	var sum, sumSq string
	if _, err := pgx.ForEachRow(rows, []any{&k.ref.Type, &k.ref.ID, &k.kind, &k.dimension, &n, &voters, &sum, &sumSq}, func() error {
		kept[k], err = aggregateOf(k.kind, k.dimension, n, voters, sum, sumSq)
		return err
	}); err != nil {
		return err
	}
	var group []artifact.SignalRow
	var of signalKey
	settle := func() {
		if len(group) > 0 {
			v.recounted(of, group, kept)
		}
		delete(kept, of)
		group = group[:0]
	}
	if rows, err = tx.Query(ctx, countedSignalsQuery, keys...); err != nil {
		return err
	}
	var voter, value string
	if _, err := pgx.ForEachRow(rows, []any{&k.ref.Type, &k.ref.ID, &k.kind, &k.dimension, &voter, &value}, func() error {
		if k != of {
			settle()
			of = k
		}
		val, err := artifact.ParseSum(value)
		group = append(group, artifact.SignalRow{Voter: voter, Value: val})
		return err
	}); err != nil {
		return err
	}
	settle()
	for k := range kept {
		v.fault(faultAggregate, k.name(), "sums are kept of it, and no signals are there")
	}
	return nil
}

// name says what sums are of.
func (k signalKey) name() string {
	name := k.ref.String() + " " + k.kind
	if k.dimension != "" {
		name += " " + k.dimension
	}
	return name
}

func (v *storeVerifier) recounted(k signalKey, rows []artifact.SignalRow, kept map[signalKey]artifact.Aggregate) {
	schema := v.schemas.get(k.ref.Type)
	if schema == nil {
		v.fault(faultAggregate, k.name(), "its type is not known")
		return
	}
	mode := schema.Signals[k.kind].Aggregation
	counted := artifact.SumSignals(rows, mode)
	want := counted.Aggregate(k.kind, k.dimension)
	got, ok := kept[k]
	if !ok {
		v.fault(faultAggregate, k.name(), "no sums are kept of its %d signals", len(rows))
	} else if got.Count != want.Count || got.Voters != want.Voters || got.Sum != want.Sum || got.SumSq != want.SumSq {
		v.fault(faultAggregate, k.name(), "its sums are %s, counted anew %s", told(&got), told(&want))
	}
}

func told(a *artifact.Aggregate) string {
	return strconv.FormatInt(a.Count, 10) + " of " + strconv.FormatInt(a.Voters, 10) + " voters, sum " + a.Sum.String() + ", of squares " + a.SumSq.String()
}

// types compares the registered types with their artifacts.
func (v *storeVerifier) types(ctx context.Context) error {
	return v.snapshot(ctx, func(tx pgx.Tx) error {
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM schema_registry WHERE is_current`).Scan(&n); err != nil {
			return err
		}
		v.read(faultType, n)
		return v.faults(ctx, tx, faultType, typesQuery)
	})
}
