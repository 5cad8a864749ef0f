package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// counted returns a hub with the registry of its metrics.
func counted(t *testing.T) (*fixture, *prometheus.Registry) {
	t.Helper()
	pool, err := hub.OpenPool(t.Context(), pgtest.URL(t, initHub))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := prometheus.NewRegistry()
	return newHubWith(t, hub.Config{DB: pool, Metrics: r}), r
}

// counter returns the sum of a metric's counters whose label has a value.
func counter(t *testing.T, r *prometheus.Registry, name, label, value string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

const groupedMetric = "scidex_hub_writes_grouped_total"

// TestWritesShareTransactions checks that writes of all kinds that share
// transactions each get their own answer, and leave what they would have alone.
func TestWritesShareTransactions(t *testing.T) {
	f, r := counted(t)
	const writers, each = 24, 12
	paper := f.mustCreate(t, verb.CreateRequest{Type: "paper", ID: "PMID:1", Title: "P", Content: content(map[string]any{"pmid": "1"})})
	common := f.mustCreate(t, hypothesis("common", "for all"))
	var mu sync.Mutex
	spans := make(map[string][2]artifact.Seq) // request id → its rows in the log
	g, ctx := errgroup.WithContext(t.Context())
	for i := range writers {
		g.Go(func() error {
			me := as(ctx, "agent-"+strconv.Itoa(i), verb.Contributor)
			name := "w" + strconv.Itoa(i)
			own, err := verb.Create.Call(me, f.verbs, hypothesis(name, "of "+name))
			if err != nil {
				return err
			}
			for n := range each {
				changed, err := verb.Update.Call(me, f.verbs, verb.UpdateRequest{
					Ref: own.Ref.Current().String(), BaseContentHash: own.ContentHash, MergePatch: content(map[string]any{"description": fmt.Sprint(name, " ", n)}),
				})
				if err != nil || changed.Revision != own.Revision+1 {
					return fmt.Errorf("update %d of %s: revision %d, %w", n, name, changed.Revision, err)
				}
				own = changed
				_, err = verb.Update.Call(me, f.verbs, verb.UpdateRequest{Ref: common.Ref.Current().String(), BaseContentHash: artifact.HashBytes([]byte(name)), Title: "T"})
				if e := artifact.AsError(err); e.Reason != artifact.ReasonUnknownBase {
					return fmt.Errorf("an update of an unknown base: %w", err)
				}
				signal, err := verb.Signal.Call(me, f.verbs, verb.SignalRequest{Ref: common.Ref.Current().String(), Kind: "fund", Value: "1"})
				if err != nil {
					return err
				}
				mu.Lock()
				spans[signal.RequestID] = [2]artifact.Seq{signal.Seq, signal.Seq}
				mu.Unlock()
				if _, err := verb.Create.Call(me, f.verbs, verb.CreateRequest{
					Type: "hypothesis", Title: "Made by " + name, Content: content(map[string]any{"statement": "s"}),
					Links: []verb.LinkSpec{{Predicate: "cites", To: paper.Ref.Current().String()}},
				}); err != nil {
					return err
				}
				link := verb.LinkRequest{From: own.Ref.Current().String(), LinkSpec: verb.LinkSpec{Predicate: "supports", To: common.Ref.Current().String()}}
				first, err := verb.Link.Call(me, f.verbs, link)
				if err != nil || (n > 0) != (first.Idempotency == verb.IdempotencyDeduplicated) {
					return fmt.Errorf("link %d: %s, %w", n, first.Idempotency, err)
				}
				if _, err := verb.Comment.Call(me, f.verbs, verb.CommentRequest{Ref: own.Ref.Current().String(), Body: "as I said"}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if shared := counter(t, r, groupedMetric, "how", "shared"); shared < writers {
		t.Errorf("%v writes shared a transaction: the test tries nothing", shared)
	}
	for what, c := range map[string]struct {
		query string
		want  int
	}{
		"artifacts":  {"SELECT count(*) FROM artifact WHERE type IN ('hypothesis', 'comment', 'paper')", 2 + writers*(1+2*each)},
		"links":      {"SELECT count(*) FROM link", writers * (1 + 2*each)},
		"signals":    {"SELECT n FROM signal_aggregate", writers * each},
		"sum":        {"SELECT sum::int FROM signal_aggregate", writers * each},
		"voters":     {"SELECT voters FROM signal_aggregate", writers},
		"revisions":  {"SELECT count(*) FROM artifact_revision WHERE type = 'hypothesis' AND id LIKE 'w%'", writers * (1 + each)},
		"agents":     {"SELECT count(*) FROM feed.change WHERE kind = 'agent' AND ref LIKE 'agent:agent-%'", writers},
		"strangers":  {"SELECT count(*) FROM event e JOIN write_journal j ON e.seq BETWEEN j.first_seq AND j.last_seq WHERE e.actor_id <> j.actor_id", 0},
		"unordered":  {"SELECT count(*) FROM write_journal a JOIN write_journal b ON a.last_seq <> b.last_seq AND a.first_seq BETWEEN b.first_seq AND b.last_seq", 0},
		"foreign":    {"SELECT count(*) FROM feed.change c JOIN write_journal j ON c.seq BETWEEN j.first_seq AND j.last_seq WHERE c.commit_seq <> j.last_seq", 0},
		"unanswered": {"SELECT count(*) FROM feed.change c WHERE NOT EXISTS (SELECT FROM write_journal j WHERE c.seq BETWEEN j.first_seq AND j.last_seq)", 0},
	} {
		if n := f.count(t, c.query); n != c.want {
			t.Errorf("%d %s, want %d", n, what, c.want)
		}
	}
	for id, span := range spans {
		if n := f.count(t, "SELECT count(*) FROM write_journal WHERE request_id = $1 AND last_seq = $2", id, span[1]); n != 1 {
			t.Fatalf("request %s is not the journal's at %d", id, span[1])
		}
	}
	f.checkDense(t)
	f.checkDigest(t)
	f.checkRing(t)
}

// TestHeldArtifact checks that a write which waits for a lock that another
// transaction holds keeps nobody else waiting.
func TestHeldArtifact(t *testing.T) {
	f, r := counted(t)
	held := f.mustCreate(t, hypothesis("held", "x"))
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM artifact WHERE id = 'held' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 3)
	vote := func(sub string) {
		_, err := verb.Signal.Call(as(t.Context(), sub, verb.Contributor), f.verbs, verb.SignalRequest{Ref: held.Ref.Current().String(), Kind: "vote", Value: "1"})
		waiting <- err
	}
	for i := range cap(waiting) {
		go vote("voter-" + strconv.Itoa(i))
	}
	g, ctx := errgroup.WithContext(t.Context())
	for i := range 8 {
		g.Go(func() error {
			for n := range 10 {
				if _, err := verb.Create.Call(contributor(ctx), f.verbs, hypothesis(fmt.Sprint("free-", i, "-", n), "x")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waiting:
		t.Fatalf("a vote on what is held was answered: %v", err)
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(waiting) {
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	}
	if n := f.count(t, "SELECT n FROM signal_aggregate"); n != 3 {
		t.Errorf("%d votes, want 3", n)
	}
	if counter(t, r, groupedMetric, "how", "shared") == 0 {
		t.Error("no write shared a transaction: the test tries nothing")
	}
}

// TestGroupThatFails checks that the members of a transaction that the database
// refuses for the sake of one are written nonetheless.
func TestGroupThatFails(t *testing.T) {
	f, _ := counted(t)
	// What another hub's transaction is about to make is not seen before it commits.
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `
		INSERT INTO paper_key (kind, key, scope, id) VALUES ('pmid', '77', 'commons', 'another')`); err != nil {
		t.Fatal(err)
	}
	g := new(errgroup.Group)
	g.Go(func() error {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, verb.CreateRequest{Type: "paper", Title: "P", Content: content(map[string]any{"pmid": "77"})})
		if !artifact.IsCode(err, artifact.CodeValidationFailed) {
			return fmt.Errorf("a second paper with the PubMed id: %w", err)
		}
		return nil
	})
	for i := range 16 {
		g.Go(func() error {
			_, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis(fmt.Sprint("h", i), "x"))
			return err
		})
	}
	for f.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'") == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := f.count(t, "SELECT count(*) FROM artifact WHERE type = 'hypothesis'"); n != 16 {
		t.Errorf("%d hypotheses, want 16", n)
	}
	f.checkDense(t)
}

// TestSameKeyAtOnce checks that of concurrent requests with one key one runs, and
// the others get its answer; and that a key used for another request is told.
func TestSameKeyAtOnce(t *testing.T) {
	f, _ := counted(t)
	for round := range 10 {
		key := uuid.NewString()
		answers := make([]verb.WriteResult, 12)
		g := new(errgroup.Group)
		for i := range answers {
			g.Go(func() (err error) {
				in := hypothesis("", fmt.Sprint("round ", round))
				in.IdempotencyKey = key
				answers[i], err = verb.Create.Call(contributor(t.Context()), f.verbs, in)
				return err
			})
			g.Go(func() error {
				in := hypothesis("", fmt.Sprint("other than round ", round, i))
				in.IdempotencyKey = key
				_, err := verb.Create.Call(as(t.Context(), "ada", verb.Contributor), f.verbs, in)
				if artifact.AsError(err).Reason != artifact.ReasonIdempotencyConflict && err != nil {
					return err
				}
				return nil
			})
		}
		err := g.Wait()
		if e := artifact.AsError(err); err != nil && e.Reason != artifact.ReasonIdempotencyConflict {
			t.Fatal(err)
		}
		fresh := 0
		for _, a := range answers {
			if a.Idempotency == verb.IdempotencyFresh {
				fresh++
			}
		}
		if n := f.count(t, "SELECT count(*) FROM artifact WHERE type = 'hypothesis'"); fresh > 1 || n != round+1 {
			t.Fatalf("round %d: %d fresh answers, %d hypotheses", round, fresh, n)
		}
	}
}

// TestWaiterGivesUp checks that a write whose caller hangs up while it waits is
// not done, and leaves the rest alone.
func TestWaiterGivesUp(t *testing.T) {
	f, _ := counted(t)
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM feed.lock FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis("first", "x"))
		first <- err
	}()
	for f.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := verb.Create.Call(contributor(ctx), f.verbs, hypothesis("second", "x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write whose caller hung up: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	f.mustCreate(t, hypothesis("third", "x"))
	if n := f.count(t, "SELECT count(*) FROM artifact WHERE id = 'second'"); n != 0 {
		t.Error("the write was done")
	}
}

// inBothLabs lets anyone write in two labs.
type inBothLabs struct{ verb.Access }

func (inBothLabs) Revoked(verb.TokenID) bool { return false }

func (inBothLabs) Roles(string) verb.Roles {
	return verb.Roles{"lab-a": {verb.Contributor}, "lab-b": {verb.Contributor}}
}

// TestNewAgentInManyScopes checks that an agent whose first writes, in several
// scopes, share a transaction is the same agent in each.
func TestNewAgentInManyScopes(t *testing.T) {
	f := twoLabs(t)
	g, ctx := errgroup.WithContext(t.Context())
	for i := range 20 {
		for n := range 9 {
			g.Go(func() error {
				me := verb.WithCaller(ctx, &verb.Caller{
					Actor: artifact.Actor{ID: fmt.Sprint("new-", i), Kind: "human"}, Permissions: []string{verb.Contributor}, Access: inBothLabs{},
					RequestID: uuid.NewString(), Now: artifact.Now(),
				})
				in := hypothesis("", "x")
				in.Scope = []string{artifact.Commons, "lab-a", "lab-b"}[n%3]
				_, err := verb.Create.Call(me, f.verbs, in)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	const told = `FROM feed.change WHERE kind = 'agent' AND ref LIKE 'agent:new-%'`
	if n := f.count(t, "SELECT count(*) "+told); n != 60 {
		t.Errorf("agents are told of %d times, want 60", n)
	}
	if n := f.count(t, "SELECT count(DISTINCT data) "+told); n != 20 {
		t.Errorf("%d descriptions of 20 agents", n)
	}
	f.checkDense(t)
}
