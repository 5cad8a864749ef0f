package replicate

import (
	"encoding/json"
	"fmt"

	"github.com/scidex-ai/substrate/artifact"
)

// KindEventFloor is the kind of the row that says which events of its scope are no
// longer kept.
const KindEventFloor = "event_floor"

// An EventFloor is the data of an event_floor row: all public events of the scope up
// to UpTo are gone, and those since the floor before came to Sums. Digests take these
// out, in both stores alike.
type EventFloor struct {
	Scope string       `json:"scope"`
	Sums  []EventSum   `json:"sums"` // by type, in order
	UpTo  artifact.Seq `json:"upto"`
}

// An EventSum is what events of a type come to in a digest.
type EventSum struct {
	Count int64         `json:"count"`
	Type  string        `json:"type"`
	XOR   artifact.Hash `json:"xor"`
}

// EventFloorRef returns the ref of a scope's event_floor rows.
func EventFloorRef(scope string) string { return KindEventFloor + ":" + scope }

// EventFloor returns what a row says of the events that are no longer kept; nil for a
// row of another kind.
func (r *Row) EventFloor() (*EventFloor, error) {
	if r.Kind != KindEventFloor || r.Op != Put {
		return nil, nil //nolint:nilnil // most rows say nothing of it
	}
	f := new(EventFloor)
	if err := json.Unmarshal(r.Data, f); err != nil {
		return nil, fmt.Errorf("event floor: %w", err)
	}
	if f.Scope != r.Scope || f.UpTo < 1 {
		return nil, fmt.Errorf("event floor: the row is of %s and its data of %s up to %d", r.Scope, f.Scope, f.UpTo)
	}
	return f, nil
}

// Forget takes out of s what a floor says is no longer kept. With undo it puts that
// back.
func (s Sums) Forget(f *EventFloor, undo bool) {
	for i := range f.Sums {
		gone := &f.Sums[i]
		sum, n := s.at(DigestKey{f.Scope, KindEvent, gone.Type}), gone.Count
		if !undo {
			n = -n
		}
		sum.Count += n
		for j := range sum.XOR {
			sum.XOR[j] ^= gone.XOR[j]
		}
	}
}
