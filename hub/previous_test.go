package hub_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
)

// readScopes reads a log up to a seq as a follower of scopes, and checks that each
// row follows the one before it in its scope, from what hello says on.
func readScopes(t *testing.T, log replicate.Log, from, to artifact.Seq, scopes ...string) (rows []string, last map[string]artifact.Seq) {
	t.Helper()
	reader, hello, err := log.Open(t.Context(), replicate.Position{Seq: from}, scopes)
	if err != nil {
		t.Fatalf("Open at %d: %v", from, err)
	}
	if len(hello.Prev) != len(scopes) {
		t.Errorf("hello at %d names the last rows %v, want those of %v", from, hello.Prev, scopes)
	}
	last = maps.Clone(hello.Prev)
	for at := from; at < to; {
		p, err := reader.Next(t.Context(), nil)
		if err != nil {
			t.Fatalf("Next after %d: %v", at, err)
		}
		at = p.To
		for _, raw := range p.Rows {
			var r replicate.Row
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			if r.Prev != last[r.Scope] {
				t.Fatalf("from %d: row %d of %s follows %d, want %d", from, r.Seq, r.Scope, r.Prev, last[r.Scope])
			}
			last[r.Scope] = r.Seq
			rows = append(rows, string(raw))
		}
	}
	return rows, last
}

// TestPredecessors checks that each row names the one before it in its scope,
// alike in the ring and by SQL, wherever a follower begins.
func TestPredecessors(t *testing.T) {
	db := pgtest.New(t, initHub)
	f := newHubOn(t, db)
	first := f.head(t)
	for i := range 40 {
		appendRows(t, db, 1+i%3, "public", []string{"commons", "lab-a", "lab-b", "lab-a"}[i%4], "test:x")
		appendRows(t, db, 1, "internal", "lab-a", "test:hidden")
	}
	head := f.head(t)
	scopes := []string{"commons", "lab-a", "lab-c"}
	want, _ := readScopes(t, f, 0, head, scopes...)
	lagging := newHubWith(t, hub.Config{DB: db, RingBytes: 1})
	for from := range head {
		if from < first-3 && from > 3 {
			continue
		}
		logs := map[string]replicate.Log{"ring": f, "SQL": lagging}
		if from%16 == 0 {
			logs["begun anew"] = newHubOn(t, db)
		}
		for name, log := range logs {
			got, last := readScopes(t, log, from, head, scopes...)
			sameRows(t, fmt.Sprint(name, " from ", from), got, want[len(want)-len(got):])
			if last["lab-c"] != 0 {
				t.Errorf("the last row of a scope without rows is %d", last["lab-c"])
			}
		}
	}
}
