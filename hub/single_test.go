package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// newHubOf makes a hub whose schema of a type is changed before it opens.
func newHubOf(t *testing.T, typ string, change func(schema map[string]any)) *fixture {
	t.Helper()
	db := pgtest.New(t, initHub)
	if err := alterSchema(t.Context(), db, typ, change); err != nil {
		t.Fatal(err)
	}
	return newHubOn(t, db)
}

func alterSchema(ctx context.Context, db *pgxpool.Pool, typ string, change func(map[string]any)) error {
	var document string
	if err := db.QueryRow(ctx, `SELECT document FROM schema_registry WHERE is_current AND artifact_type = $1`, typ).Scan(&document); err != nil {
		return err
	}
	schema := map[string]any{}
	if err := json.Unmarshal([]byte(document), &schema); err != nil {
		return err
	}
	change(schema)
	raw, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	if _, err := artifact.ParseSchema(raw); err != nil {
		return err
	}
	_, err = db.Exec(ctx, `UPDATE schema_registry SET document = $2 WHERE is_current AND artifact_type = $1`, typ, string(raw))
	return err
}

// oneTest makes tested_in a predicate of cardinality one.
func oneTest(schema map[string]any) {
	schema["links"].(map[string]any)["tested_in"] = map[string]any{"to_types": []any{"paper"}, "cardinality": "one"}
}

func testedIn(from, to string) verb.LinkRequest {
	return verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{Predicate: "tested_in", To: to}}
}

func (f *fixture) link(ctx context.Context, in verb.LinkRequest) (verb.LinkResult, error) {
	return verb.Link.Call(ctx, f.verbs, in)
}

// TestCardinality checks that of a predicate of cardinality one an artifact has one
// live link.
func TestCardinality(t *testing.T) {
	f := newHubOf(t, "hypothesis", oneTest)
	f.scope(t, "lab-a")
	f.grant(t, "lab-a", "ada", verb.Contributor)
	ada, bob := f.member(t.Context(), "ada", verb.Contributor), as(t.Context(), "bob", verb.Contributor)
	for _, id := range []string{"a", "b", "c"} {
		f.mustCreate(t, hypothesis(id, "x"))
	}
	f.mustCreate(t, paper("p", "", map[string]any{}))
	f.mustCreate(t, paper("q", "", map[string]any{}))
	private := hypothesis("own", "x")
	private.Scope = "lab-a"
	if _, err := verb.Create.Call(ada, f.verbs, private); err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Create.Call(ada, f.verbs, paper("r", "lab-a", map[string]any{})); err != nil {
		t.Fatal(err)
	}
	first, err := f.link(ada, testedIn("hypothesis:a", "paper:p"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.link(ada, testedIn("hypothesis:a", "paper:p"))
	if err != nil || again.Ref != first.Ref {
		t.Errorf("the same link again = %+v, %v", again, err)
	}
	refused := func(name string, err error, ref string) {
		t.Helper()
		e := artifact.AsError(err)
		if e.Code != artifact.CodeValidationFailed || len(e.Problems) != 1 || e.Problems[0].Constraint != "cardinality" || !strings.Contains(e.Problems[0].Message, ref) {
			t.Errorf("%s = %v, want it refused for %s", name, err, ref)
		}
	}
	_, err = f.link(ada, testedIn("hypothesis:a", "paper:q"))
	refused("another target", err, first.Ref)
	_, err = f.link(bob, testedIn("hypothesis:a", "paper:p"))
	refused("another agent", err, first.Ref)
	_, err = f.link(ada, testedIn("hypothesis:a", "paper:lab-a/r"))
	refused("in a lab, whose members see the one in commons", err, first.Ref)
	two := hypothesis("d", "x")
	two.Links = []verb.LinkSpec{{Predicate: "tested_in", To: "paper:p"}, {Predicate: "tested_in", To: "paper:q"}}
	_, err = verb.Create.Call(ada, f.verbs, two)
	refused("two in one create", err, "")
	t.Run("a lab's own is not in the way of others", func(t *testing.T) {
		if _, err := f.link(ada, testedIn("hypothesis:b", "paper:lab-a/r")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.link(bob, testedIn("hypothesis:b", "paper:p")); err != nil {
			t.Errorf("in commons = %v", err)
		}
	})
	t.Run("what was taken back makes room", func(t *testing.T) {
		if _, err := verb.Unlink.Call(ada, f.verbs, verb.UnlinkRequest{Ref: first.Ref, Reason: "wrong"}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.link(bob, testedIn("hypothesis:a", "paper:q")); err != nil {
			t.Errorf("another = %v", err)
		}
	})
	t.Run("items of a batch see each other's", func(t *testing.T) {
		made := hypothesis("e", "x")
		p, q := testedIn("@new", "paper:p"), testedIn("@new", "paper:q")
		out, err := verb.Batch.Call(ada, f.verbs, verb.BatchRequest{Items: []verb.BatchItem{{RefAlias: "new", Create: &made}, {Link: &p}, {Link: &q}}})
		if err != nil || out.Items[1].Link == nil {
			t.Fatalf("batch = %+v, %v", out, err)
		}
		refused("the second of a batch", out.Items[2].Error, out.Items[1].Link.Ref)
	})
	t.Run("of two at once one wins", func(t *testing.T) {
		other := newHubOn(t, f.db)
		for i := range 20 {
			from := fmt.Sprintf("hypothesis:race%d", i)
			f.mustCreate(t, hypothesis(fmt.Sprintf("race%d", i), "x"))
			errs := make(chan error, 2)
			for h, to := range map[*fixture]string{f: "paper:p", other: "paper:q"} {
				go func() {
					_, err := h.link(bob, testedIn(from, to))
					errs <- err
				}()
			}
			one, two := <-errs, <-errs
			if (one == nil) == (two == nil) {
				t.Fatalf("two links at once: %v and %v, want one of them refused", one, two)
			}
		}
		if n := f.count(t, `SELECT count(*) FROM (SELECT from_id FROM link WHERE predicate = 'tested_in' AND from_id LIKE 'race%' GROUP BY from_id HAVING count(*) <> 1) AS x`); n != 0 {
			t.Errorf("%d artifacts with other than one link", n)
		}
	})
	f.checkDense(t)
	f.checkDigest(t)
}

// TestGuardNames checks that the rules which the verbs keep for every type are told
// by their validators' names.
func TestGuardNames(t *testing.T) {
	f := newHub(t)
	ada, rev := contributor(t.Context()), as(t.Context(), "rev", verb.Reviewer)
	made := f.mustCreate(t, hypothesis("h", "x"))
	p := f.mustCreate(t, paper("p", "", map[string]any{}))
	update := func(ctx context.Context, base artifact.Hash, state string) (verb.WriteResult, error) {
		return verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base, State: state})
	}
	_, early := update(rev, made.ContentHash, "resolved")
	under, err := update(ada, made.ContentHash, "investigating")
	if err != nil {
		t.Fatal(err)
	}
	_, unfit := update(ada, under.ContentHash, "resolved")
	_, nowhere := f.link(ada, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "paper:none"}})
	_, unbacked := f.link(ada, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "paper:p", EvidenceRefs: []string{p.Ref.Current().String(), "evidence:none"}}})
	_, self := f.supersede(t, verb.SupersedeRequest{Ref: "hypothesis:h", ReplacementRef: "hypothesis:h"})
	_, by := f.supersede(t, verb.SupersedeRequest{Ref: "hypothesis:h", ReplacementRef: "hypothesis:none"})
	linked := hypothesis("i", "x")
	linked.Links = []verb.LinkSpec{{Predicate: "supports", To: "paper:p"}, {Predicate: "supports", To: "paper:none"}}
	_, inCreate := verb.Create.Call(ada, f.verbs, linked)
	for name, c := range map[string]struct {
		err                    error
		code, path, constraint string
	}{
		"a move that the schema does not have": {early, "lifecycle_violation", "/state", artifact.GuardTransition},
		"a move by one who may not":            {unfit, "permission_denied", "/state", artifact.GuardActor},
		"a link to nothing":                    {nowhere, "link_target_missing", "/to", artifact.GuardTargets},
		"evidence that is not there":           {unbacked, "link_target_missing", "/evidence_refs/1", artifact.GuardEvidence},
		"replaced by itself":                   {self, "validation_failed", "/replacement_ref", artifact.GuardSelf},
		"replaced by nothing":                  {by, "link_target_missing", "/replacement_ref", artifact.GuardTargets},
		"a link to nothing in a create":        {inCreate, "link_target_missing", "/links/1/to", artifact.GuardTargets},
	} {
		if e := artifact.AsError(c.err); code(c.err) != c.code || len(e.Problems) != 1 || e.Problems[0].Path != c.path || e.Problems[0].Constraint != c.constraint {
			t.Errorf("%s = %+v, want %s at %s by %s", name, e, c.code, c.path, c.constraint)
		}
	}
}

// A lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// shadowed returns how many faults of a validator in shadow mode were counted.
func shadowed(t *testing.T, r *prometheus.Registry, validator string) (n float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "scidex_hub_validator_shadowed_total" && label.GetValue() == validator {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestValidatorModes runs one validator in each mode, by type.
func TestValidatorModes(t *testing.T) {
	for mode, want := range map[string]struct {
		refused bool
		warned  int
	}{"enforce": {refused: true}, "shadow": {warned: 1}, "off": {}} {
		t.Run(mode, func(t *testing.T) {
			var log lockedLog
			db := pgtest.New(t, initHub)
			if err := alterSchema(t.Context(), db, "hypothesis", func(schema map[string]any) {
				schema["validator_modes"] = map[string]any{artifact.GuardNCT: mode}
			}); err != nil {
				t.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			f := newHubWith(t, hub.Config{DB: db, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: registry})
			out, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis("h", "As in NCT0123456."))
			if (err != nil) != want.refused || len(out.Warnings) != want.warned {
				t.Fatalf("create = %+v, %v", out, err)
			}
			if want.refused && artifact.AsError(err).Problems[0].Constraint != artifact.GuardNCT || want.warned > 0 && out.Warnings[0].Constraint != artifact.GuardNCT {
				t.Errorf("told %+v, %v", out.Warnings, err)
			}
			if n := shadowed(t, registry, artifact.GuardNCT); n != float64(want.warned) {
				t.Errorf("%v faults are counted, want %d", n, want.warned)
			}
			if strings.Contains(log.String(), "validators in shadow mode found faults") != (want.warned > 0) {
				t.Errorf("the log says %q", log.String())
			}
			// Another type keeps its own mode.
			_, err = verb.Create.Call(contributor(t.Context()), f.verbs, verb.CreateRequest{Type: "wiki_page", ID: "w", Title: "W", Content: content(map[string]any{"markdown": "As in NCT0123456."})})
			if code(err) != "validation_failed" {
				t.Errorf("a wiki page = %v", err)
			}
		})
	}
	t.Run("of those that are always kept are refused", func(t *testing.T) {
		for _, name := range []string{artifact.GuardTargets, artifact.GuardEvidence, artifact.GuardTransition, artifact.GuardActor, artifact.GuardSelf} {
			for mode, want := range map[artifact.ValidatorMode]int{"enforce": 0, "shadow": 1, "off": 1} {
				problems := artifact.CheckValidatorModes(map[string]artifact.ValidatorMode{name: mode}, []string{name}, "/validator_modes")
				if len(problems) != want || want == 1 && (problems[0].Constraint != "always_enforced" || problems[0].Path != "/validator_modes/"+name) {
					t.Errorf("%s in mode %s: %v", name, mode, problems)
				}
			}
		}
	})
}

// TestThreads checks what a comment may answer.
func TestThreads(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	for _, id := range []string{"h", "i"} {
		f.mustCreate(t, hypothesis(id, "x"))
	}
	comment := func(on, parent, body string) (verb.WriteResult, error) {
		return verb.Comment.Call(ctx, f.verbs, verb.CommentRequest{Ref: on, ThreadParent: parent, Body: body})
	}
	first, err := comment("hypothesis:h", "", "one")
	if err != nil {
		t.Fatal(err)
	}
	parent := first.Ref.Current().String()
	second, err := comment("hypothesis:h", parent, "two")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := comment("hypothesis:h", second.Ref.Current().String(), "three"); err != nil {
		t.Errorf("an answer to an answer = %v", err)
	}
	for name, c := range map[string]struct{ on, parent, body, path string }{
		"a comment on something else": {"hypothesis:i", parent, "x", "/thread_parent"},
		"what is no comment":          {"hypothesis:h", "hypothesis:i", "x", "/thread_parent"},
		"no comment that is here":     {"hypothesis:h", "comment:none", "x", "/thread_parent"},
		"nothing said":                {"hypothesis:h", parent, "", "/body"},
		"too much said":               {"hypothesis:h", parent, strings.Repeat("é", 65_537), "/body"},
	} {
		_, err := comment(c.on, c.parent, c.body)
		if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != c.path {
			t.Errorf("%s = %v, want a fault at %s", name, err, c.path)
		}
	}
	if _, err := comment("hypothesis:h", parent, strings.Repeat("é", 65_536)); err != nil {
		t.Errorf("as much as may be said = %v", err)
	}
}
