package hub_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestBatchesDoNotDeadlock: 200 random concurrent batches over overlapping
// artifacts, at two hubs of one database, end without deadlock; what was
// acknowledged is there, and nothing else.
func TestBatchesDoNotDeadlock(t *testing.T) {
	one, metrics := counted(t)
	two := newHubOn(t, one.db)
	hubs := []*fixture{one, two}
	const workers, each = 8, 25
	answers := make([][]verb.BatchResult, workers)
	asked := make([][][]verb.BatchItem, workers)
	var wg sync.WaitGroup
	for w := range workers {
		m := &itemMaker{Rand: rand.New(rand.NewPCG(uint64(w), uint64(testSeed(t))))}
		ctx := as(t.Context(), fmt.Sprintf("agent-%d", w), verb.Contributor)
		wg.Go(func() {
			for range each {
				m.aliases, m.n = nil, m.IntN(200) // the same artifacts for all
				items := make([]verb.BatchItem, 1+m.IntN(30))
				for i := range items {
					items[i] = m.next()
				}
				out, err := verb.Batch.Call(ctx, hubs[m.IntN(2)].verbs, verb.BatchRequest{Atomic: m.IntN(4) == 0, Items: items})
				if err != nil {
					t.Errorf("worker %d: %v", w, err)
					return
				}
				answers[w], asked[w] = append(answers[w], out), append(asked[w], items)
			}
		})
	}
	wg.Wait()
	if n := one.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	const retries = "scidex_hub_write_retries_total"
	if n := counter(t, metrics, retries, "reason", "deadlock") + counter(t, metrics, retries, "reason", "serialization"); n != 0 {
		t.Errorf("%v writes were run again for the database's sake", n)
	}
	done, artifacts, links, signals := 0, 0, 0, 0
	for w := range answers {
		for b, out := range answers[w] {
			for i, it := range out.Items {
				if out.Atomic && !out.Committed && it.Error == nil && !it.Skipped {
					t.Errorf("batch failed, and item %d says %+v", i, it)
				}
				if it.Error != nil || it.Skipped {
					continue
				}
				done++
				one.checkItem(t, asked[w][b][i], it)
				switch {
				case it.Write != nil && it.Write.Created, it.Write != nil && asked[w][b][i].Supersede != nil && asked[w][b][i].Supersede.Replacement != nil:
					artifacts++
				case it.Link != nil && it.Link.Idempotency == verb.IdempotencyNone && asked[w][b][i].Unlink == nil:
					links++
				case it.Signal != nil && it.Signal.Idempotency == verb.IdempotencyNone:
					signals++
				}
			}
		}
	}
	if n := one.count(t, "SELECT count(*) FROM artifact"); n-one.count(t, "SELECT count(*) FROM artifact WHERE type = 'schema'") != artifacts {
		t.Errorf("%d artifacts, and %d were acknowledged", n, artifacts)
	}
	if n := one.count(t, "SELECT count(*) FROM signal"); n != signals {
		t.Errorf("%d signals, and %d were acknowledged", n, signals)
	}
	if done < 100 || links == 0 || signals == 0 {
		t.Errorf("%d items were done, %d links, %d signals: the test tests little", done, links, signals)
	}
	t.Logf("%d items were done", done)
	one.checkDigest(t)
}

// checkItem checks that what an acknowledged item made is there.
func (f *fixture) checkItem(t *testing.T, asked verb.BatchItem, it verb.BatchItemResult) {
	t.Helper()
	there := func(query string, args ...any) {
		if f.count(t, query, args...) == 0 {
			t.Errorf("%+v was acknowledged and is not there", it)
		}
	}
	switch {
	case it.Write != nil:
		there("SELECT count(*) FROM artifact_revision WHERE type = $1 AND id = $2 AND revision = $3 AND content_hash = $4", it.Write.Ref.Type, it.Write.Ref.ID, it.Write.Revision, it.Write.Ref.Hash[:])
	case it.Signal != nil:
		there("SELECT count(*) FROM signal WHERE id = $1", strings.TrimPrefix(it.Signal.Ref, "signal:"))
	case asked.Unlink != nil:
		there("SELECT count(*) FROM link_retraction WHERE id = $1", strings.TrimPrefix(it.Link.Ref, "kg_edge:"))
	case it.Link != nil: // which may have been taken back since
		there("SELECT (SELECT count(*) FROM link WHERE id = $1) + (SELECT count(*) FROM link_retraction WHERE id = $1)", strings.TrimPrefix(it.Link.Ref, "kg_edge:"))
	}
}

// TestBatchesOfPapers: two batches that make the same papers in opposite orders
// take turns.
func TestBatchesOfPapers(t *testing.T) {
	f := newHub(t)
	for round := range 10 {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				var items []verb.BatchItem
				for i := range 50 {
					n := i
					if w%2 == 0 {
						n = 49 - i
					}
					items = append(items, verb.BatchItem{Create: &verb.CreateRequest{
						Type: "paper", ID: fmt.Sprintf("p-%d-%d-%d", round, w, n), Title: "t", Content: content(map[string]any{"pmid": strconv.Itoa(1000*(round+1) + n)}),
					}})
				}
				if _, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: items}); err != nil {
					t.Error(artifact.AsError(err))
				}
			})
		}
		wg.Wait()
		if n := f.count(t, "SELECT count(*) FROM artifact WHERE id LIKE $1", fmt.Sprintf("p-%d-%%", round)); n != 50 {
			t.Errorf("%d papers, want each of 50 once", n)
		}
	}
	if n := f.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
