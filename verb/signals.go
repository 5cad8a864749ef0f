package verb

import (
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Signals reads what was made of an artifact's signals.
var Signals = Verb[SignalsRequest, SignalsResponse]{
	Name:    "signals",
	Summary: "Sum up the signals on an artifact, by kind and dimension.",
	Effect:  Read,
	Needs:   toRead,
}

// SignalsRequest names the artifact. Signals are on it and not on a version: the
// hash of a pinned ref counts for nothing.
type SignalsRequest struct {
	Ref   artifact.Ref `json:"ref" jsonschema:"type:id of the artifact"`
	Kinds []string     `json:"kinds,omitempty" jsonschema:"kinds of signal, such as vote; absent for all"`
	At    *time.Time   `json:"at,omitempty" jsonschema:"when the decayed means are of, such as 2026-01-31T00:00:00Z; absent: now"`
}

// SignalsResponse is what was made of the signals.
type SignalsResponse struct {
	Ref     string                   `json:"ref"`     // type:id
	Signals []artifact.SignalSummary `json:"signals"` // by kind and dimension in order
	At      time.Time                `json:"at"`      // that decayed means are of
	AsOf    artifact.Seq             `json:"as_of"`
}

// Time returns what decayed means are of.
func (r *SignalsRequest) Time(now time.Time) time.Time {
	if r.At != nil {
		return r.At.UTC()
	}
	return now
}

// Duels reports whether the answer needs all duels of the type.
func (r *SignalsRequest) Duels(s *artifact.Schema) bool {
	_, has := s.Signals[artifact.KindDuel]
	return has && (len(r.Kinds) == 0 || slices.Contains(r.Kinds, artifact.KindDuel))
}

// Place fills the response in with what a store holds, as [artifact.Schema]'s
// SummarizeSignals takes it.
func (r *SignalsResponse) Place(s *artifact.Schema, in *SignalsRequest, groups []artifact.SignalGroup, duels artifact.Duels, now time.Time) {
	r.Ref, r.At = in.Ref.Current().String(), in.Time(now)
	r.Signals = s.SummarizeSignals(r.Ref, groups, duels, r.At)
}
