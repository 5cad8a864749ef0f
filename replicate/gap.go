package replicate

import (
	"fmt"
	"maps"

	"github.com/scidex-ai/substrate/artifact"
)

// A GapError reports that a source left out rows of a scope, or sends a log that
// took another course than the copy's.
type GapError struct {
	Scope string
	Seq   artifact.Seq // the row that does not follow; 0 for a hello
	Prev  artifact.Seq // the row that it should follow, by the source
	Have  artifact.Seq // the scope's last row that the sink was sent
}

// Error implements error.
func (e *GapError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("by the hub, row %d of scope %s is the last one up to here, and the copy's last is %d", e.Prev, e.Scope, e.Have)
	}
	return fmt.Sprintf("row %d of scope %s follows row %d there, and the copy's last is %d: rows were left out, or the log took another course",
		e.Seq, e.Scope, e.Prev, e.Have)
}

// A Trail is the last row of each scope that a sink was sent. By it a sink proves
// that it was sent all rows of its scopes, whatever else is in the log.
type Trail map[string]artifact.Seq

// Meet compares t with what a hello says of its position. Scopes that t does not
// know are taken as they are.
func (t Trail) Meet(h *Hello) error {
	for scope, seq := range h.Prev {
		if have, ok := t[scope]; ok && have != seq {
			return &GapError{Scope: scope, Prev: seq, Have: have}
		}
	}
	maps.Copy(t, h.Prev)
	return nil
}
