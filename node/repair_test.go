package node_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// tamper changes a replica's file behind the node's back.
func tamper(t *testing.T, at *lab, statements ...string) {
	t.Helper()
	tamperFile(t, at.dir, statements...)
}

func tamperFile(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, node.ReplicaFile)+"?_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		res, err := db.ExecContext(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s changes nothing: %v", s, err)
		}
	}
}

// furnish writes some of each kind.
func (l *labs) furnish(t *testing.T) {
	t.Helper()
	ada := l.as(t, "ada")
	for i := range 4 {
		must(t, verb.Create, ada, statement("", fmt.Sprint("h", i), fmt.Sprint("statement ", i)))
	}
	mine := must(t, verb.Create, ada, statement("lab-a", "h1", "of the lab"))
	must(t, verb.Update, ada, verb.UpdateRequest{Ref: mine.Ref.Current().String(), BaseContentHash: mine.ContentHash, Title: "of the lab, again"})
	for i := range 3 {
		must(t, verb.Link, ada, verb.LinkRequest{From: "hypothesis:h0", LinkSpec: verb.LinkSpec{Predicate: "supports", To: fmt.Sprint("hypothesis:h", i+1)}})
	}
	for _, c := range []verb.Invoker{ada, l.as(t, "bob"), l.as(t, "root")} {
		_, _ = verb.Signal.Call(t.Context(), c, verb.SignalRequest{Ref: "hypothesis:h0", Kind: "vote", Value: "1"})
	}
	must(t, verb.Signal, ada, verb.SignalRequest{Ref: "hypothesis:h0", Kind: "vote", Value: "-1"})
	must(t, verb.Comment, ada, verb.CommentRequest{Ref: "hypothesis:h1", Body: "Why?"})
	l.caughtUp(t)
}

func TestRepair(t *testing.T) {
	l := newLabs(t)
	l.furnish(t)
	l.verify(t, l.a, l.b)
	const extra = `INSERT INTO artifact SELECT type, 'h-extra', scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by,
		quality_score, created_at, created_by, updated_at, updated_by, row_hash FROM artifact WHERE id = 'h1'`
	for name, statements := range map[string][]string{
		"a head":                      {`UPDATE artifact SET title = 'x' WHERE id = 'h1'`},
		"a head with its hash":        {`UPDATE artifact SET title = 'x', row_hash = zeroblob(32) WHERE id = 'h1'`},
		"a hash alone":                {`UPDATE artifact SET row_hash = x'00' WHERE id = 'h1'`},
		"a head's scope":              {`UPDATE artifact SET scope = 'lab-a' WHERE id = 'h1'`},
		"a missing head":              {`DELETE FROM artifact WHERE id = 'h1'`},
		"an extra head":               {extra},
		"a revision":                  {`UPDATE artifact_revision SET note = 'x' WHERE id = 'h1'`},
		"provenance that is no JSON":  {`UPDATE artifact_revision SET provenance = '{' WHERE id = 'h1'`},
		"content":                     {`UPDATE artifact_revision SET content = '{"statement":"x"}' WHERE id = 'h1'`},
		"a missing revision":          {`DELETE FROM artifact_revision WHERE id = 'lab-a/h1' AND revision = 1`},
		"a link":                      {`UPDATE link SET to_ref = 'hypothesis:h2' WHERE to_id = 'h3'`},
		"a missing link":              {`DELETE FROM link WHERE to_id = 'h3'`},
		"a signal":                    {`UPDATE signal SET value = '0' WHERE voter = 'ada' AND value = '1'`},
		"the last signal":             {`DELETE FROM signal WHERE voter = 'ada' AND value = '-1'`},
		"sums of signals":             {`UPDATE signal_aggregate SET n = n + 1`},
		"missing sums":                {`DELETE FROM signal_aggregate`},
		"an event":                    {`UPDATE event SET payload = '{}' WHERE ref LIKE 'hypothesis:h1@%'`},
		"missing events":              {`DELETE FROM event WHERE type = 'hypothesis.created'`},
		"an extra event":              {`INSERT INTO event SELECT seq + 1, type, ref, scope, actor_id, actor_kind, at, payload FROM event WHERE seq + 1 NOT IN (SELECT seq FROM event) LIMIT 1`},
		"an event's type":             {`UPDATE event SET type = 'hypothesis.updated' WHERE ref LIKE 'hypothesis:h2@%' AND type = 'hypothesis.created'`},
		"the digest":                  {`UPDATE digest SET acc = zeroblob(32) WHERE kind = 'artifact'`},
		"the digest gone":             {`DELETE FROM digest`},
		"rows and the digest of them": {`DELETE FROM link WHERE to_id = 'h3'`, `UPDATE digest SET n = n + 7 WHERE kind = 'link'`},
		"everything at once": {
			`DELETE FROM artifact WHERE id = 'h1'`, `DELETE FROM event`, `DELETE FROM digest`, `DELETE FROM signal`, `DELETE FROM link`,
			`UPDATE artifact_revision SET content = '{}', scope = 'commons'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := l.dump(t)
			tamper(t, l.a, statements...)
			report, err := l.a.Verify(t.Context())
			if err != nil || report.Equal() {
				t.Fatalf("Verify finds nothing: %v", err)
			}
			report, err = l.a.Repair(t.Context())
			if err != nil || !report.Equal() || report.Left > 0 {
				t.Fatalf("Repair: %v, %v, %+v", err, report.Differences, report.Rows)
			}
			if !strings.Contains(name, "digest") && report.Mended == 0 {
				t.Error("Repair tells of no row that it mended")
			}
			l.verify(t, l.a)
			if after := l.dump(t); after != before {
				t.Errorf("the tables differ after the repair:\n%s\n%s", before, after)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		report, err := l.a.Repair(t.Context())
		if err != nil || !report.Equal() || report.Asked != 1 || len(report.Rows) > 0 {
			t.Errorf("Repair of an equal replica = %+v, %v", report, err)
		}
	})
}

// dump returns all that a repair could change, as text.
func (l *labs) dump(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(l.a.dir, node.ReplicaFile)+"?mode=ro&_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b strings.Builder
	for _, table := range []string{"artifact", "artifact_revision", "link", "signal", "signal_aggregate", "event", "digest"} {
		dumpTable(t, db, table, &b)
	}
	return b.String()
}

func dumpTable(t *testing.T, db *sql.DB, table string, b *strings.Builder) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table+" ORDER BY 1, 2, 3, 4")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		b.WriteString(table)
		for _, v := range values {
			fmt.Fprintf(b, " %v", *v.(*any))
		}
		b.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// exec changes the hub's database behind the hub's back.
func (l *labs) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		tag, err := l.db.Exec(t.Context(), s)
		if err != nil || tag.RowsAffected() == 0 && !strings.HasPrefix(s, "ALTER") {
			t.Fatalf("%s: %v, %v", s, tag, err)
		}
	}
}

// scan has the hub read its tables, whose sums it otherwise keeps for a while.
func (l *labs) scan(t *testing.T) {
	t.Helper()
	if _, err := l.hub.Digest(t.Context(), []string{artifact.Commons}, 0); err != nil {
		t.Fatal(err)
	}
}

// TestRepairLeavesWhatTheHubHasWrong checks that a replica does not take over what
// was changed in the hub's tables past its log.
func TestRepairLeavesWhatTheHubHasWrong(t *testing.T) {
	const hash = `sha256('x')`
	for name, c := range map[string]struct{ change, kind, want string }{
		"a row's hash": {`UPDATE artifact SET title = 'x', row_hash = ` + hash + ` WHERE id = 'h1'`, "artifact", "not what its hash says"},
		"a link":       {`UPDATE link SET row_hash = ` + hash + ` WHERE to_id = 'h3'`, "link", "not what its hash says"},
		"a row gone":   {`DELETE FROM link WHERE to_id = 'h3'`, "link", "does not hold it"},
		"an event":     {`DELETE FROM event WHERE type = 'hypothesis.created' AND ref LIKE 'hypothesis:h1@%'`, "event", "does not hold it"},
		"a row as it once was": {
			`UPDATE artifact a SET title = c.data::json ->> 'title', revision = c.revision, updated_at = c.at, row_hash = c.hash,
				content_hash = decode(substr(c.data::json ->> 'content_hash', 8), 'hex')
			FROM feed.change c WHERE c.kind = 'artifact' AND c.ref = 'hypothesis:lab-a/h1' AND c.revision = 1 AND a.id = 'lab-a/h1'`,
			"artifact", "not what its log says",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabs(t)
			l.furnish(t)
			before := l.dump(t)
			l.exec(t, "ALTER TABLE artifact_revision DISABLE TRIGGER USER", c.change)
			l.scan(t)
			report, err := l.a.Verify(t.Context())
			if err != nil || report.Equal() {
				t.Fatalf("Verify finds nothing: %v", err)
			}
			report, err = l.a.Repair(t.Context())
			if err != nil || report.Equal() || report.Mended > 0 || report.Left == 0 || !report.HubAtFault() {
				t.Fatalf("Repair = %+v, %v", report, err)
			}
			for _, d := range report.Rows {
				if d.Kind != c.kind || !strings.Contains(d.Outcome, c.want) {
					t.Errorf("row %+v, want %q", d, c.want)
				}
			}
			if after := l.dump(t); after != before {
				t.Errorf("the replica has changed:\n%s\n%s", before, after)
			}
		})
	}
}

// insertLinks puts links into the hub as its writes do, but many at once.
func (l *labs) insertLinks(t *testing.T, n int) {
	t.Helper()
	const commit = 500
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	rows := make([][]any, 0, n)
	var refs, data []string
	var hashes [][]byte
	for i := range n {
		row := replicate.Link{
			At: at, By: "ada", Evidence: []byte("null"), EvidenceRefs: []string{}, From: "hypothesis:h0", ID: fmt.Sprintf("many-%07d", i),
			Predicate: "supports", Scope: artifact.Commons, To: fmt.Sprintf("hypothesis:t%d", i),
		}
		raw, hash, err := replicate.Encode(row)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, []any{row.ID, "hypothesis", "h0", row.Predicate, "hypothesis", row.To[len("hypothesis:"):], row.To, row.Scope, "[]", "null", at, row.By, hash[:]})
		refs, data, hashes = append(refs, "kg_edge:"+row.ID), append(data, string(raw)), append(hashes, hash[:])
	}
	if err := pgx.BeginFunc(t.Context(), l.db, func(tx pgx.Tx) error {
		columns := []string{"id", "from_type", "from_id", "predicate", "to_type", "to_id", "to_ref", "scope", "evidence_refs", "evidence", "created_at", "created_by", "row_hash"}
		if _, err := tx.CopyFrom(t.Context(), pgx.Identifier{"link"}, columns, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		//nolint:dupword // SQL's arguments
		const query = `
			SELECT feed.append(
				array_fill(1, ARRAY[$4::int]), array_fill('public'::text, ARRAY[$4::int]), array_fill('commons'::text, ARRAY[$4::int]), array_fill('link'::text, ARRAY[$4::int]), array_fill('P'::text, ARRAY[$4::int]),
				$1, array_fill(1, ARRAY[$4::int]), $2, array_fill(NULL::bytea, ARRAY[$4::int]), $3, array_fill(NULL::text, ARRAY[$4::int]), array_fill(NULL::text, ARRAY[$4::int]), array_fill(NULL::text, ARRAY[$4::int]),
				ARRAY[$4::int], ARRAY[date_trunc('milliseconds', now())], ARRAY['tester'], ARRAY['human'], ARRAY[gen_random_uuid()], ARRAY['test'], ARRAY[''], ARRAY[''], ARRAY['[]'], ARRAY[''],
				NULL, NULL, NULL)`
		for i := 0; i < n; i += commit {
			end := min(n, i+commit)
			if _, err := tx.Exec(t.Context(), query, refs[i:end], hashes[i:end], data[i:end], end-i); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRepairAsksLittle checks that few rows of many are found and fetched with few
// questions.
func TestRepairAsksLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("it copies 100,000 rows")
	}
	l := newLabs(t)
	l.furnish(t)
	l.insertLinks(t, 100_000)
	head, err := l.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.a.WaitApplied(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.verify(t, l.a)
	took := time.Since(began)
	tamper(t, l.a, `UPDATE link SET predicate = 'x', row_hash = zeroblob(32) WHERE id = 'many-0000007'`, `DELETE FROM link WHERE id = 'many-0054321'`,
		`INSERT INTO link SELECT 'many-0099998a', from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash FROM link WHERE id = 'many-0099998'`)
	began = time.Now()
	report, err := l.a.Repair(t.Context())
	t.Logf("verify of 100,000 links: %s; repair of 3: %s, %d questions", took, time.Since(began), report.Asked)
	if err != nil || !report.Equal() || report.Mended != 3 || len(report.Rows) != 3 {
		t.Fatalf("Repair = %v, %v, %+v", err, report.Differences, report.Rows)
	}
	// Two digests, the parts of the key, three lists of rows, and the rows.
	if report.Asked > 8 {
		t.Errorf("the repair asked %d questions", report.Asked)
	}
}

// TestRepairWhileWritersRun checks that neither a comparison nor a repair is misled
// by what is written meanwhile.
func TestRepairWhileWritersRun(t *testing.T) {
	l := newLabs(t)
	l.furnish(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	ada, root := l.as(t, "ada"), l.as(t, "root")
	writers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			made, err := verb.Create.Call(t.Context(), ada, statement("", fmt.Sprint("w", i), "while"))
			if err == nil && i%3 == 0 {
				_, err = verb.Update.Call(t.Context(), ada, verb.UpdateRequest{Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, Title: "again"})
			}
			if err == nil && i%2 == 0 {
				_, err = verb.Signal.Call(t.Context(), ada, verb.SignalRequest{Ref: "hypothesis:h0", Kind: "vote", Value: json.Number(strconv.Itoa(i%3 - 1)), Reason: strconv.Itoa(i)})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	writers.Go(func() { // what is moved and redacted is withheld from those who lag
		for i := 0; ctx.Err() == nil; i++ {
			made, err := verb.Create.Call(t.Context(), ada, statement("lab-a", fmt.Sprint("m", i), "moved"))
			if err == nil && i%2 == 0 {
				_, err = verb.Move.Call(t.Context(), root, verb.MoveRequest{Ref: made.Ref.Current().String(), Scope: artifact.Commons, BaseContentHash: made.ContentHash, Reason: "to try it"})
			} else if err == nil {
				_, err = verb.Redact.Call(t.Context(), root, verb.RedactRequest{Ref: made.Ref.Current().String(), Reason: "to try it", Revisions: 1})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writers.Wait()
	defer stop()
	for i := range 10 {
		l.verify(t, l.a)
		tamper(t, l.a, fmt.Sprintf(`UPDATE artifact SET title = 'x' WHERE id = 'h%d'`, i%4), `DELETE FROM signal WHERE voter = 'bob'`,
			`DELETE FROM event WHERE seq IN (SELECT seq FROM event WHERE type = 'hypothesis.created' LIMIT 2)`,
			`UPDATE artifact SET title = 'y' WHERE rowid IN (SELECT rowid FROM artifact WHERE id LIKE 'w%' ORDER BY rowid DESC LIMIT 3)`)
		report, err := l.a.Repair(t.Context())
		if err != nil || !report.Equal() {
			t.Fatalf("Repair: %v, %v, %+v", err, report.Differences, report.Rows)
		}
	}
	stop()
	writers.Wait()
	l.caughtUp(t)
	l.verify(t, l.a, l.b)
	l.verifyHub(t)
}

// TestRepairIsOvertaken: rows that the feed brings anew while the hub's answer is under
// way stay as the feed has them.
func TestRepairIsOvertaken(t *testing.T) {
	w := newWorld(t, initHub)
	w.some("h", "", 5, 100)
	ada := w.as("ada", verb.Contributor)
	do(w, ada, verb.Signal, verb.SignalRequest{Ref: "hypothesis:h3", Kind: "vote", Value: "1"})
	r := w.node(t.TempDir(), "ada", verb.Contributor)
	w.caughtUp(r)
	base := do(w, w.as("ada", verb.Viewer), verb.Get, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h3"}}).Artifact.Ref.Hash
	tamperFile(t, r.dir, `UPDATE artifact SET title = 'forged', row_hash = zeroblob(32) WHERE id = 'h3'`, `UPDATE signal SET value = '0', row_hash = zeroblob(32)`)
	asked, overtaken := 0, make(map[string]bool)
	w.meddle(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/feed/rows" {
				next.ServeHTTP(rw, req)
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Error(err)
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			held := httptest.NewRecorder()
			next.ServeHTTP(held, req)
			asked++
			switch of := string(body); {
			case strings.Contains(of, `"artifact"`) && !overtaken["head"]:
				overtaken["head"] = true
				do(w, ada, verb.Update, verb.UpdateRequest{Ref: "hypothesis:h3", BaseContentHash: base, Title: "The newest"})
			case strings.Contains(of, `"signal"`) && !overtaken["signal"]:
				overtaken["signal"] = true
				do(w, ada, verb.Signal, verb.SignalRequest{Ref: "hypothesis:h3", Kind: "vote", Value: "-1"})
			}
			w.caughtUp(r)
			maps.Copy(rw.Header(), held.Header())
			rw.WriteHeader(held.Code)
			_, _ = rw.Write(held.Body.Bytes())
		})
	})
	report, err := r.Repair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if asked < 2 || len(report.Rows) == 0 || report.Rows[0].Key != "h3" || !strings.Contains(report.Rows[0].Outcome, "the feed has brought it anew") {
		t.Errorf("%d questions; the repair tells %+v", asked, report.Rows)
	}
	w.meddle(nil)
	got, err := verb.Get.Call(t.Context(), &verb.Client{URL: r.url, Token: r.token}, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h3"}})
	if err != nil || got.Artifact.Title != "The newest" {
		t.Errorf("what the feed had brought is %q, %v", got.Artifact.Title, err)
	}
	in := verb.SignalsRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h3"}, At: new(time.Unix(2_000_000_000, 0))}
	of := do(w, w.as("ada", verb.Viewer), verb.Signals, in).Signals
	at, err := verb.Signals.Call(t.Context(), &verb.Client{URL: r.url, Token: r.token}, in)
	if err != nil || !reflect.DeepEqual(at.Signals, of) {
		t.Errorf("the sums of signals are %+v, the hub's %+v, %v", at.Signals, of, err)
	}
	w.equal(r)
}

// TestSelfCheck is what users of a file system for replicas met (field lesson 14), whose nodes
// went round and round on a checksum that did not match until someone deleted the
// volume: a node finds that it differs, says so, mends itself and serves on.
func TestSelfCheck(t *testing.T) {
	l := newLabs(t)
	l.furnish(t)
	id, err := node.ReadIdentity(l.a.dir)
	if err != nil {
		t.Fatal(err)
	}
	l.a.stop()
	tamper(t, l.a, `UPDATE artifact SET title = 'x' WHERE id = 'h1'`, `DELETE FROM link WHERE to_id = 'h3'`)
	counts := prometheus.NewRegistry()
	l.a = l.serveWith(t, node.Config{Dir: l.a.dir, HubURL: l.hubURL, Identity: id, SelfCheck: 50 * time.Millisecond, RebuildWait: time.Millisecond, Metrics: counts})
	ready := func() (about struct {
		Status, Reason string
		SelfCheck      node.Checkup `json:"self_check"`
	},
	) {
		resp, err := http.Get(l.a.url + "/readyz")
		if err != nil {
			t.Error(err)
			return about
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&about); err != nil {
			t.Error(err)
		}
		return about
	}
	eventually(t, 10*time.Second, "the replica is mended", func() bool { return gathered(t, counts, "scidex_node_rows_mended_total") == 2 })
	l.verify(t, l.a)
	eventually(t, 10*time.Second, "the node tells that it is whole", func() bool { return ready().SelfCheck.Equal && ready().Status == "ready" })

	// What cannot be mended row by row is copied anew, beside what is served.
	tamper(t, l.a, `INSERT INTO link SELECT 'ghost', from_type, from_id, predicate, to_type, to_id, to_ref, 'ghost-scope', evidence_refs, evidence, created_at, created_by, row_hash FROM link LIMIT 1`)
	reads, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		for reads.Err() == nil {
			must(t, verb.Get, l.at(t, l.a, "ada"), verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h1"}})
		}
	})
	eventually(t, 30*time.Second, "the replica is copied anew", func() bool {
		report, err := l.a.Verify(t.Context())
		return err == nil && report.Equal() && l.a.Building().Reason == ""
	})
	stop()
	reader.Wait()
	eventually(t, 10*time.Second, "the node tells that it is whole", func() bool { return ready().SelfCheck.Equal && ready().Status == "ready" })

	// What the hub has wrong is told and not taken over, and all is served on.
	l.exec(t, `DELETE FROM link WHERE to_id = 'h3'`)
	l.scan(t)
	eventually(t, 10*time.Second, "the node says that the hub is at fault", func() bool {
		r := ready()
		return r.Status == "degraded" && strings.Contains(r.Reason, "scidex hub verify") && r.SelfCheck.AtFault == "hub"
	})
	if gathered(t, counts, "scidex_node_diverged") != 1 {
		t.Error("no metric tells of the divergence")
	}
	made := must(t, verb.Create, l.as(t, "ada"), statement("", "after", "written since"))
	if err := l.a.WaitApplied(t.Context(), made.Seq); err != nil {
		t.Fatal(err)
	}
	must(t, verb.Get, l.at(t, l.a, "ada"), verb.GetRequest{Ref: made.Ref})
}

// A readiness is what /readyz of a node says.
type readiness struct {
	Status, Reason string
	SelfCheck      node.Checkup `json:"self_check"`
	AppliedSeq     int64        `json:"applied_seq"`
}

func (at *lab) ready(t *testing.T) (about readiness) {
	t.Helper()
	resp, err := http.Get(at.url + "/readyz")
	if err != nil {
		t.Error(err)
		return about
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&about); err != nil {
		t.Error(err)
	}
	return about
}

// TestRefusedChange checks that a node which cannot take a change because of what
// stands in its own file mends that and goes on.
func TestRefusedChange(t *testing.T) {
	l := newLabs(t)
	l.furnish(t)
	id, err := node.ReadIdentity(l.a.dir)
	if err != nil {
		t.Fatal(err)
	}
	l.a.stop()
	l.a = l.serveWith(t, node.Config{Dir: l.a.dir, HubURL: l.hubURL, Identity: id, RetryWait: 50 * time.Millisecond})
	tamper(t, l.a, `INSERT INTO event SELECT (SELECT seq FROM replica_state) + 2, type, ref, scope, actor_id, actor_kind, at, payload FROM event WHERE type = 'hypothesis.created' LIMIT 1`)
	made := must(t, verb.Create, l.as(t, "ada"), statement("", "in-the-way", "of an event"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := l.a.WaitApplied(ctx, made.Seq); err != nil {
		t.Fatalf("the node does not go on: %v, it says %+v", err, l.a.ready(t))
	}
	l.verify(t, l.a)
	if r := l.a.ready(t); r.SelfCheck.Mended != 1 {
		t.Errorf("the node tells %+v", r)
	}
}

// A laterHub passes on what a hub answers; while it is on, the feed asks for a later
// reader than there is.
type laterHub struct {
	on      atomic.Bool
	streams atomic.Int64 // asked for while it is on
}

func (h *laterHub) serve(t *testing.T, hubURL string) string {
	t.Helper()
	to, err := url.Parse(hubURL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.URL.Path == "/feed" && h.on.Load() {
				h.streams.Add(1)
				resp.Body = &later{ReadCloser: resp.Body}
			}
			return nil
		},
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	return srv.URL
}

// later is a feed whose hello asks for a later reader.
type later struct {
	io.ReadCloser
	said bool
}

func (l *later) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	if !l.said && n > 0 { // the hello is written at one time
		l.said = true
		copy(b, bytes.Replace(b[:n], fmt.Appendf(nil, `"min_reader":%d`, replicate.WireVersion), []byte(`"min_reader":9`), 1))
	}
	return n, err
}

// TestFieldLesson18 is what users of sync services met when a schema changed under
// their clients: endless loops of fetching. A node that is too old for the feed
// stops applying, serves on, says which version it needs, asks seldom, and goes on
// where it was once it may.
func TestFieldLesson18(t *testing.T) {
	l := newLabs(t)
	l.furnish(t)
	var h laterHub
	id, err := node.ReadIdentity(l.a.dir)
	if err != nil {
		t.Fatal(err)
	}
	through := h.serve(t, l.hubURL)
	var logged lockedBuffer
	start := func() {
		l.a.stop()
		l.a = l.serveWith(t, node.Config{
			Dir: l.a.dir, HubURL: through, Identity: id, RetryWait: 200 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&logged, nil)),
		})
	}
	h.on.Store(true)
	start()
	before := l.a.Store().Applied()
	made := must(t, verb.Create, l.as(t, "ada"), statement("", "since", "written since"))
	const needs = "needs a reader of version 9"
	eventually(t, 10*time.Second, "the node says what it needs", func() bool {
		r := l.a.ready(t)
		return r.Status == "degraded" && strings.Contains(r.Reason, needs)
	})
	begun, streams := time.Now(), h.streams.Load()
	eventually(t, 10*time.Second, "it asks again", func() bool { return h.streams.Load() >= streams+3 })
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("it asked three times within %s", took)
	}
	status, err := l.a.Status(asAda(t.Context()))
	if err != nil || status.Trouble == nil || !strings.Contains(*status.Trouble, needs) {
		t.Errorf("the replica's status tells %v, %v", status.Trouble, err)
	}
	if !strings.Contains(logged.String(), needs) || !strings.Contains(logged.String(), "install a newer scidex") {
		t.Errorf("the log tells %s", logged.String())
	}
	must(t, verb.Get, l.at(t, l.a, "ada"), verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h1"}})
	if at := l.a.Store().Applied(); at != before {
		t.Errorf("it has applied from %d to %d", before, at)
	}
	h.on.Store(false) // as an upgrade does
	start()
	if err := l.a.WaitApplied(t.Context(), made.Seq); err != nil {
		t.Fatal(err)
	}
	l.verify(t, l.a)
	if r := l.a.ready(t); r.Reason != "" {
		t.Errorf("it still says %s", r.Reason)
	}
}

// A lockedBuffer is a buffer that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// gathered returns the value of a metric without labels.
func gathered(t *testing.T, from *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Errorf("no metric %s", name)
	return 0
}
