package artifact_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func schemaOf(t *testing.T, typ string) *artifact.Schema {
	t.Helper()
	for _, s := range artifact.ShippedSchemas() {
		if s.Type == typ {
			return s
		}
	}
	t.Fatalf("no shipped schema %s", typ)
	return nil
}

func TestShippedSchemas(t *testing.T) {
	var got []string
	for _, s := range artifact.ShippedSchemas() {
		got = append(got, s.Type)
	}
	want := strings.Fields(`analysis approach comment dataset debate_round debate_session disease evidence evidence_assessment
		evidence_facet evidence_package evidence_question evidence_record evidence_request experience experiment figure finding
		gate_result gene group handoff handoff_receipt hypothesis knowledge_gap memory message model notebook paper profile prompt
		schema search_plan search_result skill source study_design tool tool_call topic_memory wiki_page`)
	if len(got) != len(want) {
		t.Fatalf("shipped types = %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("shipped types = %v, want %v", got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	s := schemaOf(t, "hypothesis")
	problems := s.Validate([]byte(`{"mechanism":"TBD","target_gene":7}`), "/content")
	want := map[string]string{"/content/mechanism": "minLength", "/content/statement": "required", "/content/target_gene": "type"}
	if len(problems) != len(want) {
		t.Errorf("%d problems, want %d: %v", len(problems), len(want), problems)
	}
	for _, p := range problems {
		if want[p.Path] != p.Constraint {
			t.Errorf("problem %s %s (%s), want %s", p.Path, p.Constraint, p.Message, want[p.Path])
		}
	}
	if problems := s.Validate([]byte(`{"statement":"x","anything":1}`), "/content"); problems != nil {
		t.Errorf("unknown content fields are kept: %v", problems)
	}
}

func TestSuggestions(t *testing.T) {
	s := schemaOf(t, "hypothesis")
	p := s.CheckLink("suports", "paper", "")
	if p == nil || string(p.Suggestion) != `"supports"` {
		t.Errorf("CheckLink(suports) = %+v, want the suggestion supports", p)
	}
	v, err := artifact.NewValidator([]byte(`{"type":"object","properties":{"title":{"type":"string"}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	problems := v.Validate([]byte(`{"titel":"x"}`), "")
	if len(problems) != 1 || problems[0].Path != "/titel" || problems[0].Constraint != "unknown_field" || string(problems[0].Suggestion) != `"title"` {
		t.Errorf("problems = %+v, want unknown_field /titel with the suggestion title", problems)
	}
}

func TestTransitions(t *testing.T) {
	s := schemaOf(t, "hypothesis")
	if err := s.CheckTransition("proposed", "investigating", nil); err != nil {
		t.Errorf("proposed to investigating: %v", err)
	}
	if err := s.CheckTransition("proposed", "resolved", nil); !artifact.IsCode(err, artifact.CodeLifecycleViolation) {
		t.Errorf("proposed to resolved: %v, want lifecycle_violation", err)
	}
	if err := s.CheckTransition("investigating", "resolved", []string{"contributor"}); !artifact.IsCode(err, artifact.CodePermissionDenied) || artifact.AsError(err).Details["needs"] != "reviewer" {
		t.Errorf("contributor resolves: %v, want permission_denied that needs reviewer", err)
	}
	if err := s.CheckTransition("investigating", "resolved", []string{"reviewer"}); err != nil {
		t.Errorf("reviewer resolves: %v", err)
	}
}

func TestErrorRoundTrip(t *testing.T) {
	in := &artifact.Error{
		Code: artifact.CodeVersionConflict, Reason: artifact.ReasonStaleBase, Message: "m", RequestID: "r",
		Details: map[string]any{"k": "v"}, Retryable: true, RetryAfterMS: 5,
		Conflict: &artifact.Conflict{YourBase: hash, Current: &artifact.ConflictVersion{Ref: artifact.Ref{Type: "gene", ID: "x"}}},
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out := new(artifact.Error)
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(out)
	if err != nil || string(again) != string(raw) {
		t.Errorf("round trip of %s gave %s, %v", raw, again, err)
	}
	if got := artifact.AsError(errors.New("pq: secret")); got.Code != artifact.CodeInternal {
		t.Errorf("AsError of an unknown error = %v", got)
	}
}

func TestDecimal(t *testing.T) {
	for in, want := range map[string]string{"1": "1", "-0.50": "-0.5", "1e3": "1000", "2.5e-3": "0.0025", "0": "0"} {
		d, err := artifact.ParseDecimal(in)
		if err != nil || d.String() != want {
			t.Errorf("ParseDecimal(%q) = %s, %v, want %s", in, d, err, want)
		}
	}
	for _, in := range []string{"", "x", "1/3", "1e999999999", "0x10", "1_0", "NaN", "Inf", "1e"} {
		if d, err := artifact.ParseDecimal(in); err == nil {
			t.Errorf("ParseDecimal(%q) = %s, want an error", in, d)
		}
	}
}
