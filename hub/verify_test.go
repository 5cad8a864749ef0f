package hub_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

func (f *fixture) faults(t *testing.T) []string {
	t.Helper()
	v, err := hub.Verify(t.Context(), f.db)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range v.Faults {
		out = append(out, fmt.Sprintf("%s %s: %s", f.Kind, f.Ref, f.What))
	}
	return out
}

// TestVerify checks that each change past the hub is found, and that nothing else
// is.
func TestVerify(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	f.mustCreate(t, hypothesis("h", "1"))
	two := f.mustCreate(t, hypothesis("two", "2"))
	if _, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:two", BaseContentHash: two.ContentHash, Title: "again"}); err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Link.Call(ctx, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:two"}}); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "0", "-1"} {
		if _, err := verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: json.Number(value)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := verb.Comment.Call(ctx, f.verbs, verb.CommentRequest{Ref: "hypothesis:h", Body: "Why?"}); err != nil {
		t.Fatal(err)
	}
	appendRows(t, f.db, 2500, "public", "commons", "test:event") // past checkpoints
	if got := f.faults(t); got != nil {
		t.Fatalf("faults of a hub that nobody tampered with: %v", got)
	}
	f.run(t, "ALTER TABLE artifact_revision DISABLE TRIGGER USER", "ALTER TABLE signal DISABLE TRIGGER USER")
	for name, c := range map[string]struct{ change, want string }{
		"a head":            {`UPDATE artifact SET title = 'x' WHERE id = 'h'`, "artifact hypothesis:h: it is not what its hash says"},
		"a head gone":       {`DELETE FROM artifact WHERE id = 'h'`, "artifact hypothesis:h: it is not what the log says last, or is gone"},
		"content":           {`UPDATE artifact_revision SET content = '{}' WHERE id = 'h'`, "revision hypothesis:h: it is not what its hash says"},
		"a version gone":    {`DELETE FROM artifact_revision WHERE id = 'two' AND revision = 2`, "artifact hypothesis:two: its current version is missing, or another"},
		"a link":            {`UPDATE link SET predicate = 'refutes' WHERE predicate = 'supports'`, "it is not what its hash says"},
		"a link gone":       {`DELETE FROM link WHERE predicate = 'supports'`, "it is not what the log says last, or is gone"},
		"a signal":          {`UPDATE signal SET value = 7 WHERE value = 0`, "it is not what its hash says"},
		"sums":              {`UPDATE signal_aggregate SET n = 7`, "the sums after it are not those that are kept"},
		"an event":          {`UPDATE event SET payload = '{"x":1}' WHERE type = 'hypothesis.created'`, "the chain up to here is not the one that was noted"},
		"an event gone":     {`DELETE FROM event WHERE type = 'hypothesis.created'`, "its event is gone"},
		"the log's data":    {`UPDATE feed.change SET data = '{}' WHERE ref = 'hypothesis:h' AND kind = 'artifact'`, "its data is not what its hash says"},
		"a hole in the log": {`DELETE FROM feed.change WHERE seq = 1500`, "the log has a hole"},
		"what was replaced": {`UPDATE feed.change SET prev_hash = sha256('x') WHERE ref = 'hypothesis:two' AND kind = 'artifact' AND prev_hash IS NOT NULL`, "it replaced something else than the log had said before"},
		"a row as it once was": {
			`UPDATE artifact a SET title = c.data::json ->> 'title', revision = c.revision, updated_at = c.at, row_hash = c.hash,
				content_hash = decode(substr(c.data::json ->> 'content_hash', 8), 'hex')
			FROM feed.change c WHERE c.kind = 'artifact' AND c.ref = 'hypothesis:two' AND c.revision = 1 AND a.id = 'two'`,
			"artifact hypothesis:two: it is not what the log says last, or is gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tables := []string{"artifact", "artifact_revision", "link", "signal", "signal_aggregate", "event", "feed.change"}
			for _, table := range tables {
				f.run(t, fmt.Sprintf("CREATE TABLE kept_%s AS SELECT * FROM %s", strings.ReplaceAll(table, ".", "_"), table))
			}
			defer func() {
				for _, table := range tables {
					kept := "kept_" + strings.ReplaceAll(table, ".", "_")
					f.run(t, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM "+kept, "DROP TABLE "+kept)
				}
			}()
			f.run(t, c.change)
			got := f.faults(t)
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("faults = %v, want %q", got, c.want)
			}
		})
	}
	if got := f.faults(t); got != nil {
		t.Errorf("faults once all is as it was: %v", got)
	}
}

// run changes the database past the hub.
func (f *fixture) run(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := f.db.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
