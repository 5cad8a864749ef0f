package replicate

import (
	"encoding/json"
	"errors"
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
	a.Title = titleOf(a.Title)
	a.Content, a.Revision, a.IsLatest = raw, 1, true
	a.ContentHash = artifact.ContentHash(a.Type, a.Title, a.State, raw)
	a.Ref = artifact.Ref{Type: a.Type, ID: a.ID, Hash: a.ContentHash}
	a.UpdatedAt, a.UpdatedBy = a.CreatedAt, a.CreatedBy
	return a, nil
}

// Events of a link, which say what became of one that was taken back.
const (
	LinkCreated   = LinkType + ".created"
	LinkRetracted = LinkType + ".retracted"
)

// A GoneLink is what the log still says of a link that was taken back.
type GoneLink struct {
	From, To artifact.Ref
	Versions []GoneVersion // newest first: that it was taken back, and that it was made as far as that is kept
}

// A GoneVersion is one thing that became of a link.
type GoneVersion struct {
	artifact.Artifact
	Why string
}

// retractedState is the state of a link that was taken back.
const retractedState = "retracted"

// ParseGoneLink reads the events of a link, newest first. It returns false when they
// do not say that it was taken back.
func ParseGoneLink(id string, events []artifact.Event) (g GoneLink, ok bool, err error) {
	for i := range events {
		e := &events[i]
		if (e.Type == LinkRetracted) != (i == 0) {
			return g, false, nil // moved since, and taken back where the reader sees nothing of it
		}
		var said struct{ From, Predicate, Reason, To string }
		if err := json.Unmarshal(e.Payload, &said); err != nil {
			return g, false, err
		}
		v := GoneVersion{Why: said.Reason, Artifact: artifact.Artifact{
			Type: LinkType, ID: id, Ref: artifact.Ref{Type: LinkType, ID: id}, Scope: e.Scope, Revision: 1,
			Title:     titleOf(said.From + " " + said.Predicate + " " + said.To),
			CreatedAt: e.At, CreatedBy: e.Actor.ID, UpdatedAt: e.At, UpdatedBy: e.Actor.ID,
		}}
		if v.Provenance, _, err = Encode(struct {
			ActorID   string `json:"actor_id"`
			ActorKind string `json:"actor_kind"`
		}{e.Actor.ID, e.Actor.Kind}); err != nil {
			return g, false, err
		}
		if i == 0 {
			v.State, v.Revision = retractedState, 2
			from, err1 := artifact.ParseRef(said.From)
			to, err2 := artifact.ParseRef(said.To)
			if err := errors.Join(err1, err2); err != nil {
				return g, false, err
			}
			g.From, g.To = from.Current(), to.Current()
		} else {
			g.Versions[0].CreatedAt, g.Versions[0].CreatedBy = v.CreatedAt, v.CreatedBy
		}
		g.Versions = append(g.Versions, v)
	}
	return g, len(events) > 0, nil
}

// titleOf cuts a text to the length of a title.
func titleOf(text string) string {
	cut := artifact.MaxTitleLength
	if len(text) <= cut {
		return text
	}
	for cut -= len("…"); !utf8.RuneStart(text[cut]); {
		cut--
	}
	return text[:cut] + "…"
}
