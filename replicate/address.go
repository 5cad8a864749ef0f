package replicate

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/scidex-ai/substrate/artifact"
)

// Artifact returns a link as get answers it: its content is what it says, and its
// hash is made as that of any artifact.
func (l *Link) Artifact() (artifact.Artifact, error) {
	content := struct {
		Evidence     json.RawMessage `json:"evidence"`
		EvidenceRefs []string        `json:"evidence_refs"`
		From         string          `json:"from"`
		Predicate    string          `json:"predicate"`
		To           string          `json:"to"`
	}{l.Evidence, append([]string{}, l.EvidenceRefs...), l.From, l.Predicate, l.To}
	return addressed(artifact.Artifact{
		Type: LinkType, ID: l.ID, Scope: l.Scope, Title: l.From + " " + l.Predicate + " " + l.To, CreatedAt: l.At, CreatedBy: l.By,
	}, content)
}

// Artifact returns a signal as get answers it, as a link. Its value is exact,
// which a canonical form of RFC 8785 would not keep.
func (g *Signal) Artifact() (artifact.Artifact, error) {
	content := struct {
		Dimension string          `json:"dimension"`
		Kind      string          `json:"kind"`
		Metadata  json.RawMessage `json:"metadata"`
		Reason    string          `json:"reason"`
		Ref       string          `json:"ref"`
		Value     json.Number     `json:"value"`
		Voter     string          `json:"voter"`
		VoterKind string          `json:"voter_kind"`
		Weight    json.Number     `json:"weight"`
	}{g.Dimension, g.Kind, g.Metadata, g.Reason, g.Ref, g.Value, g.Voter, g.VoterKind, g.Weight}
	what := g.Kind
	if g.Dimension != "" {
		what += " " + g.Dimension
	}
	return addressed(artifact.Artifact{
		Type: SignalType, ID: g.ID, Scope: g.Scope, Title: what + " " + g.Value.String() + " on " + g.Ref, CreatedAt: g.At, CreatedBy: g.By,
	}, content)
}

// addressed completes what is written once and has no versions.
func addressed(a artifact.Artifact, content any) (artifact.Artifact, error) {
	raw, _, err := Encode(content)
	if err != nil {
		return a, err
	}
	if cut := artifact.MaxTitleLength; len(a.Title) > cut {
		for cut -= len("…"); !utf8.RuneStart(a.Title[cut]); {
			cut--
		}
		a.Title = a.Title[:cut] + "…"
	}
	a.Content, a.Revision, a.IsLatest = raw, 1, true
	a.ContentHash = artifact.ContentHash(a.Type, a.Title, a.State, raw)
	a.Ref = artifact.Ref{Type: a.Type, ID: a.ID, Hash: a.ContentHash}
	a.UpdatedAt, a.UpdatedBy = a.CreatedAt, a.CreatedBy
	return a, nil
}
