package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

func (f *fixture) verifyStore(t *testing.T) hub.Verification {
	t.Helper()
	report, err := hub.Verify(t.Context(), f.db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// mustBeWhole fails the test unless the hub's store is whole.
func (f *fixture) mustBeWhole(t *testing.T) hub.Verification {
	t.Helper()
	report := f.verifyStore(t)
	for _, fault := range report.Faults {
		t.Errorf("%s: %s: %s", fault.Kind, fault.Ref, fault.What)
	}
	return report
}

// exec runs SQL as one who gets around the guards of tables.
func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestVerify checks that a store in which everything has happened is whole, and
// that whatever is changed in it past the hub is found.
func TestVerify(t *testing.T) {
	f := lived(t)
	f.until(t, "facets of genes", "SELECT count(*) FROM facet_build WHERE type = 'gene' AND done", 1)
	report := f.mustBeWhole(t)
	for kind, query := range map[string]string{
		"revision": "SELECT count(*) FROM artifact_revision", "artifact": "SELECT count(*) FROM artifact", "link": "SELECT count(*) FROM link",
		"signal": "SELECT count(*) FROM signal", "aggregate": "SELECT count(*) FROM artifact", "facet": "SELECT count(*) FROM artifact", "log": "SELECT count(*) FROM feed.change",
		"type": "SELECT count(*) FROM schema_registry WHERE is_current",
	} {
		if n := f.count(t, query); int64(n) != report.Rows[kind] || n == 0 {
			t.Errorf("%d rows of %s were read of %d", report.Rows[kind], kind, n)
		}
	}
	if report.Head != f.head(t) || report.First != 1 || report.Chain.IsZero() {
		t.Errorf("the log was read from %d to %d, chain %s", report.First, report.Head, report.Chain)
	}
	f.stop() // which would note a checkpoint of its own
	f.exec(t, `INSERT INTO feed.checkpoint (seq, chain) VALUES ($1, $2)`, int64(report.Head), report.Chain[:])
	f.mustBeWhole(t)
	for _, table := range []string{"artifact_revision", "signal", "write_journal"} {
		f.exec(t, `ALTER TABLE `+table+` DISABLE TRIGGER append_only`)
	}

	const h00, h01 = `type = 'hypothesis' AND id = 'h00'`, `type = 'hypothesis' AND id = 'lab-a/h01'`
	someLink := `id = (SELECT min(id) FROM link WHERE predicate = 'about')`
	someSignal := `id = (SELECT max(id) FROM signal WHERE kind = 'vote')`
	someFacet := `type = 'gene' AND id = 'A' AND path = '/symbol'`
	someSum := `type = 'hypothesis' AND artifact = 'h00' AND kind = 'vote'`
	for _, c := range []struct {
		name, table, rows string // rows that are changed, by what does not change of them
		sql               string // SET, DELETE or INSERT
		kind, row, what   string // of a fault
	}{
		{"a version's content", "artifact_revision", h01 + " AND revision = 1", `SET content = '{"statement":"other"}'`, "revision", "hypothesis:lab-a/h01, revision 1", "content hash"},
		{"a version's note", "artifact_revision", h01 + " AND revision = 1", `SET note = 'other'`, "revision", "hypothesis:lab-a/h01, revision 1", "its hash"},
		{"who wrote a version", "artifact_revision", h01 + " AND revision = 1", `SET provenance = replace(provenance, 'ada', 'eve')`, "revision", "h01", "its hash"},
		{"a version that cannot be read", "artifact_revision", h01 + " AND revision = 1", `SET provenance = '{'`, "revision", "h01", "cannot be read"},
		{"what was redacted is back", "artifact_revision", `type = 'hypothesis' AND id = 'h08' AND revision = 1`, `SET content = '{"statement":"x"}'`, "revision", "h08, revision 1", "redacted"},
		{"an earlier version is gone", "artifact_revision", h00 + " AND revision = 1", `DELETE`, "artifact", "hypothesis:h00", "has 1 versions and should have 2"},
		{"and the log knows it", "artifact_revision", h00 + " AND revision = 1", `DELETE`, "log", ", revision 1", "does not hold the revision of hypothesis:h00"},
		{"the latest version is gone", "artifact_revision", h00 + " AND revision = 2", `DELETE`, "artifact", "hypothesis:h00", "revision 2, is missing"},
		{"an artifact is gone", "artifact", h00, `DELETE`, "revision", "hypothesis:h00, revision 2", "no artifact"},
		{"and the log knows that", "artifact", h00, `DELETE`, "log", "seq", "does not hold the artifact of hypothesis:h00"},
		{"an artifact's title", "artifact", h00, `SET title = 'other'`, "artifact", "hypothesis:h00", "its hash"},
		{"its latest version", "artifact", h00, `SET title = 'other'`, "artifact", "hypothesis:h00", "latest version"},
		{"its score", "artifact", h00, `SET quality_score = 0.1`, "artifact", "hypothesis:h00", "its hash"},
		{"what replaces it", "artifact", h00, `SET superseded_by = 'hypothesis:none'`, "artifact", "hypothesis:h00", "superseded by is missing"},
		{"an artifact that no verb made", "artifact", `type = 'hypothesis' AND id = 'new'`, `INSERT SELECT * FROM artifact WHERE ` + h00 + ` | id = 'new'`, "artifact", "hypothesis:new", "no row of the log"},
		{"a link's evidence", "link", someLink, `SET evidence_refs = '["gene:A"]'`, "link", "kg_edge:", "its hash"},
		{"where a link leads", "link", someLink, `SET to_id = 'B'`, "link", "kg_edge:", "leads to gene:B, and its ref says gene:A"},
		{"and to nothing", "link", someLink, `SET to_id = 'B'`, "link", "kg_edge:", "gene:B, to which it leads, is missing"},
		{"from nothing", "link", someLink, `SET from_id = 'B'`, "link", "kg_edge:", "hypothesis:B, from which it leads, is missing"},
		{"a link's scope", "link", someLink, `SET scope = 'lab-b'`, "link", "kg_edge:", "in the scope lab-b"},
		{"a link is gone", "link", someLink, `DELETE`, "log", "seq", "does not hold the link"},
		{"an artifact as it once was", "artifact", h00, `SET title = c.data::json ->> 'title', revision = 1, updated_at = c.at, row_hash = c.hash,
			content_hash = decode(substr(c.data::json ->> 'content_hash', 8), 'hex'), quality_score = NULL
			FROM feed.change c WHERE c.kind = 'artifact' AND c.ref = 'hypothesis:h00' AND c.revision = 1 AND c.data::json ->> 'quality_score' IS NULL`, "log", "seq", "does not hold the artifact of hypothesis:h00"},
		{"a link that was taken back is there", "link", `predicate = 'about' AND from_id = 'h00'`, `INSERT SELECT r.* FROM link_retraction t, jsonb_populate_record(NULL::link, t.link::jsonb) r WHERE r.predicate = 'about' |`, "log", "seq", "takes out of commons last"},
		{"a link was taken back", "link_retraction", `link = '{}'`, `INSERT SELECT * FROM link_retraction | id = (SELECT min(id) FROM link), link = '{}'`, "link", "kg_edge:", "taken back"},
		{"a signal's value", "signal", someSignal, `SET value = 7`, "signal", "signal:", "its hash"},
		{"and the sums", "signal", someSignal, `SET value = 7`, "aggregate", "vote", "counted anew"},
		{"a signal is gone", "signal", someSignal, `DELETE`, "log", "seq", "does not hold the signal"},
		{"a signal's artifact", "signal", someSignal, `SET artifact = 'none'`, "signal", "signal:", "is missing"},
		{"a signal's scope", "signal", someSignal, `SET scope = 'lab-b'`, "signal", "signal:", "it is in the scope lab-b"},
		{"a sum", "signal_aggregate", someSum, `SET sum = sum + 1`, "aggregate", "hypothesis:h00 vote", "its sums are 1 of 1 voters, sum 0"},
		{"how many voted", "signal_aggregate", someSum, `SET voters = 9`, "aggregate", "hypothesis:h00 vote", "counted anew"},
		{"a sum is gone", "signal_aggregate", someSum, `DELETE`, "aggregate", "hypothesis:h00 vote", "no sums are kept"},
		{"a sum of nothing", "signal_aggregate", `kind = 'fund'`, `INSERT SELECT * FROM signal_aggregate WHERE ` + someSum + ` | kind = 'fund'`, "aggregate", "hypothesis:h00 fund", "no signals"},
		{"a sum on nothing", "signal_aggregate", `artifact = 'none'`, `INSERT SELECT * FROM signal_aggregate WHERE ` + someSum + ` | artifact = 'none'`, "aggregate", "hypothesis:none", "is missing"},
		{"a paper's key", "paper_key", `id = 'PMID:9'`, `INSERT SELECT 'pmid' AS kind, '9' AS key, 'commons' AS scope, 'PMID:9' AS id |`, "aggregate", "paper:PMID:9", "is missing"},
		{"a facet", "facet", someFacet, `SET text = 'other'`, "facet", "gene:A", "not what its content makes"},
		{"a facet's scope", "facet", someFacet, `SET scope = 'lab-b'`, "facet", "gene:A", "in the scope lab-b"},
		{"a facet is gone", "facet", someFacet, `DELETE`, "facet", "gene:A", "its content makes"},
		{"a facet too many", "facet", `id = 'A' AND path = '/none'`, `INSERT SELECT * FROM facet WHERE ` + someFacet + ` | path = '/none'`, "facet", "gene:A", "not what its content makes"},
		{"a facet of nothing", "facet", `id = 'zz'`, `INSERT SELECT * FROM facet WHERE ` + someFacet + ` | id = 'zz'`, "facet", "gene:zz", "is missing"},
		{"a type", "schema_registry", `artifact_type = 'gene'`, `SET document = document || ' '`, "type", "schema:gene", "registered schema"},
		{"a type without artifact", "schema_registry", `artifact_type = 'dream'`, `INSERT SELECT * FROM schema_registry WHERE artifact_type = 'gene' | id = 'dream@v1', artifact_type = 'dream'`, "type", "schema:dream", "its artifact is missing"},
		{"a row of the log is gone", "feed.change", `seq = 50`, `DELETE`, "log", "seq 51", "hole"},
		{"the log's first row is gone", "feed.change", `seq = 1`, `DELETE`, "log", "seq 2", "begins here"},
		{"the log's end is gone", "feed.change", `commit_seq = (SELECT max(last_seq) FROM write_journal)`, `DELETE`, "log", "seq", "and there is more"},
		{"what a row says", "feed.change", `seq = (SELECT min(seq) FROM feed.change WHERE data IS NOT NULL)`, `SET data = '{}'`, "log", "seq", "not what its hash says"},
		{"which row one replaces", "feed.change", `seq = 100`, `SET prev_hash = sha256('x')`, "log", fmt.Sprintf("seq %d", report.Head), "a row or event after 0 was changed"},
		{"which row another one replaces", "feed.change", `seq = (SELECT seq FROM feed.change WHERE ref = 'hypothesis:h00' AND kind = 'artifact' AND prev_hash IS NOT NULL LIMIT 1)`, `SET prev_hash = sha256('x')`, "log", "seq", "replaced something else"},
		{"whose row it is", "feed.change", `seq = 100`, `SET scope = 'lab-b'`, "log", fmt.Sprintf("seq %d", report.Head), "chain"},
		{"a row's commit", "feed.change", `seq = 100`, `SET commit_seq = 90`, "log", "seq 100", "amid the commit"},
		{"an event", "event", `seq = (SELECT max(seq) FROM event)`, `SET payload = '{"x":1}'`, "log", fmt.Sprintf("seq %d", report.Head), "chain"},
		{"an event's type", "event", `seq = (SELECT max(seq) FROM event)`, `SET type = 'other'`, "log", "seq", "another one"},
		{"an event is gone", "event", `seq = (SELECT seq FROM feed.change WHERE event_type = 'hypothesis.created' ORDER BY seq LIMIT 1)`, `DELETE`, "log", "seq", "its event is missing"},
		{"an event of no row", "event", `seq = (SELECT min(seq) FROM feed.change WHERE event_type IS NULL)`, `INSERT SELECT * FROM event WHERE seq = (SELECT max(seq) FROM event) | seq = (SELECT min(seq) FROM feed.change WHERE event_type IS NULL)`, "log", "event", "no row of the log"},
		{"the journal", "write_journal", `last_seq = (SELECT max(last_seq) FROM write_journal)`, `DELETE`, "log", fmt.Sprintf("seq %d", report.Head), "the journal has no entry"},
		{"where a commit begins", "write_journal", `last_seq = (SELECT max(last_seq) FROM write_journal)`, `SET first_seq = 1`, "log", fmt.Sprintf("seq %d", report.Head), "in the journal with 1"},
		{"a journal of nothing", "write_journal", `last_seq = (SELECT min(seq) FROM feed.change WHERE seq <> commit_seq)`, `INSERT SELECT * FROM write_journal WHERE last_seq = (SELECT max(last_seq) FROM write_journal) | last_seq = (SELECT min(seq) FROM feed.change WHERE seq <> commit_seq)`, "log", "journal entry", "no commit"},
		{"a checkpoint", "feed.checkpoint", fmt.Sprint("seq = ", report.Head), `SET chain = sha256('x')`, "log", fmt.Sprintf("seq %d", report.Head), "chain"},
		{"a checkpoint of nothing", "feed.checkpoint", fmt.Sprint("seq = ", report.Head+9), fmt.Sprintf(`INSERT SELECT %d AS seq, sha256('x') AS chain |`, report.Head+9), "log", "seq", "and there is more"},
		{"an epoch", "epoch", `epoch = 3`, `INSERT SELECT 3 AS epoch, 5000 AS first_seq, 4000 AS last_seq, 'x' AS reason, now() AS at |`, "log", "epoch 3", "stands after epoch 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := f.fixed(t, c.table, c.rows)
			f.exec(t, `DROP TABLE IF EXISTS kept`)
			f.exec(t, `CREATE TABLE kept AS SELECT * FROM `+c.table+` WHERE `+rows)
			f.exec(t, tampering(c.table, rows, c.sql))
			found := f.verifyStore(t)
			f.exec(t, `DELETE FROM `+c.table+` WHERE `+rows)
			f.exec(t, `INSERT INTO `+c.table+` SELECT * FROM kept`)
			for _, fault := range found.Faults {
				if fault.Kind == c.kind && strings.Contains(at(fault), c.row) && strings.Contains(fault.What, c.what) {
					return
				}
			}
			t.Errorf("faults = %+v, want one of the %s at %s: …%s…", found.Faults, c.kind, c.row, c.what)
		})
	}
	f.mustBeWhole(t)

	t.Run("many", func(t *testing.T) {
		f.exec(t, `UPDATE artifact SET updated_by = 'eve'`)
		found := f.verifyStore(t)
		if n := f.count(t, `SELECT count(*) FROM artifact`); len(found.Faults) != 100 && n > 100 || found.Found["artifact"] != int64(n) {
			t.Errorf("%d faults are named and %d counted of %d", len(found.Faults), found.Found["artifact"], n)
		}
	})
}

// at says where a fault is.
func at(f hub.Fault) string {
	if f.Revision > 0 {
		return fmt.Sprintf("%s, revision %d", f.Ref, f.Revision)
	}
	return f.Ref
}

// fixed returns a condition on the place of rows in the table's order that a change
// of the rows does not move.
func (f *fixture) fixed(t *testing.T, table, rows string) string {
	t.Helper()
	key := map[string]string{
		"artifact_revision": "concat(type, ':', id, ':', revision)", "artifact": "concat(type, ':', id)", "link": "id", "link_retraction": "id", "signal": "id",
		"signal_aggregate": "concat(type, ':', artifact, kind, dimension)", "paper_key": "id", "schema_registry": "id", "feed.change": "seq::text", "event": "seq::text",
		"write_journal": "last_seq::text", "feed.checkpoint": "seq::text", "epoch": "epoch::text", "facet": "concat(type, ':', id, path, n)",
	}[table]
	var keys []string
	if err := f.db.QueryRow(t.Context(), `SELECT array_agg(`+key+`) FROM `+table+` WHERE `+rows).Scan(&keys); err != nil {
		t.Fatal(err)
	}
	if keys == nil {
		return rows // what is to be added
	}
	raw := strings.Join(keys, "','")
	return key + " IN ('" + raw + "')"
}

// tampering makes a statement of what a case does: SET a column, DELETE, or INSERT
// what a query returns, with other values in some of its columns after a bar.
func tampering(table, rows, sql string) string {
	switch {
	case strings.HasPrefix(sql, "SET"):
		if strings.Contains(sql, "FROM feed.change") {
			return `UPDATE ` + table + ` ` + sql + ` AND ` + rows
		}
		return `UPDATE ` + table + ` ` + sql + ` WHERE ` + rows
	case sql == "DELETE":
		return `DELETE FROM ` + table + ` WHERE ` + rows
	}
	query, others, _ := strings.Cut(strings.TrimPrefix(sql, "INSERT "), "|")
	var change strings.Builder
	for set := range strings.SplitSeq(others, ", ") {
		if name, value, ok := strings.Cut(strings.TrimSpace(set), " = "); ok {
			fmt.Fprintf(&change, " || jsonb_build_object('%s', %s)", name, value)
		}
	}
	return fmt.Sprintf(`INSERT INTO %[1]s SELECT n.* FROM (%[2]s) AS q, jsonb_populate_record(NULL::%[1]s, to_jsonb(q)%[3]s) AS n LIMIT 1`, table, query, change.String())
}

// TestVerifyUnderWriters checks that nothing is taken for a fault while all
// kinds of writes go on.
func TestVerifyUnderWriters(t *testing.T) {
	f := lived(t)
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	done := make([]int, 4)
	for w := range done {
		g.Go(func() error {
			ada := f.member(context.WithoutCancel(ctx), "ada", verb.Contributor)
			root := f.admin(context.WithoutCancel(ctx))
			for i := 0; ctx.Err() == nil; i++ {
				if err := f.writeSome(ada, root, fmt.Sprintf("w%d-%d", w, i)); err != nil {
					return err
				}
				done[w] = i
			}
			return nil
		})
	}
	for range 12 {
		f.mustBeWhole(t)
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for w, n := range done {
		if n < 3 {
			t.Errorf("writer %d came to %d rounds", w, n)
		}
	}
	f.mustBeWhole(t)
}

// writeSome makes, changes, moves and redacts an artifact with links and signals.
func (f *fixture) writeSome(ada, root context.Context, id string) error {
	made, err := verb.Create.Call(ada, f.verbs, hypothesis(id, "x"))
	if err != nil {
		return err
	}
	ref := made.Ref.Current().String()
	for _, value := range []string{"1", "-1"} {
		if _, err := verb.Signal.Call(ada, f.verbs, verb.SignalRequest{Ref: ref, Kind: "vote", Value: json.Number(value)}); err != nil {
			return err
		}
	}
	if _, err := verb.Signal.Call(ada, f.verbs, verb.SignalRequest{Ref: ref, Kind: "rank", Dimension: "novelty", Value: "0.5"}); err != nil {
		return err
	}
	link, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: ref, LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:A"}})
	if err != nil {
		return err
	}
	updated, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: ref, BaseContentHash: made.ContentHash, Title: "Again"})
	if err != nil {
		return err
	}
	if _, err := verb.Unlink.Call(ada, f.verbs, verb.UnlinkRequest{Ref: link.Ref, Reason: "no"}); err != nil {
		return err
	}
	if _, err := verb.Move.Call(root, f.verbs, verb.MoveRequest{Ref: ref, BaseContentHash: updated.ContentHash, Scope: "lab-a", Reason: "private"}); err != nil {
		return err
	}
	if _, err := verb.Move.Call(root, f.verbs, verb.MoveRequest{Ref: ref, BaseContentHash: updated.ContentHash, Scope: artifact.Commons, Reason: "public"}); err != nil {
		return err
	}
	_, err = verb.Redact.Call(root, f.verbs, verb.RedactRequest{Ref: ref, Reason: "private data", Revisions: 2})
	return err
}
