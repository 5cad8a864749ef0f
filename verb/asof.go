package verb

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
)

// CheckAsOf refuses a seq that a store cannot answer for: one above its position,
// which is head, or before oldest, the first that its events tell of.
func CheckAsOf(seq, oldest, head artifact.Seq) error {
	switch {
	case seq > head:
		return artifact.Invalid(artifact.Problem{
			Path: "/as_of_seq", Constraint: "range", Message: fmt.Sprintf("the log ends at %d here", head),
			Value: json.RawMessage(strconv.FormatInt(int64(seq), 10)),
		})
	case seq < oldest:
		return &artifact.Error{
			Code: artifact.CodeNotFound, Reason: artifact.ReasonHistoryTrimmed, Message: "the log does not reach back that far",
			Details: map[string]any{"oldest_seq": oldest},
		}
	}
	return nil
}

// An AsOf is which version of an artifact was current at a place in the log, as the
// events tell that the caller may see.
type AsOf struct {
	typ        string
	latest     bool // now
	superseded bool // later
	Revision   int  // 0: it was not there
}

// AsOfHead begins with the artifact as it is now.
func AsOfHead(typ string, revision int, latest bool) AsOf {
	return AsOf{typ: typ, Revision: revision, latest: latest}
}

// VersionEvents are the types of the events which say that another version is
// current: one was written, or the artifact came to the event's scope, or left it.
func (a *AsOf) VersionEvents() []string {
	return []string{a.typ + ".created", a.typ + ".updated", a.typ + ".moved", a.typ + ".removed"}
}

// SupersededEvent is the type of the event which says that the artifact is replaced.
func (a *AsOf) SupersededEvent() string { return a.typ + ".superseded" }

// Superseded says that there is such an event after the place.
func (a *AsOf) Superseded() { a.superseded = true }

// Tell takes the types and payloads of the last version event up to the place and
// of the first one after it, "" for none. The one before tells all, unless the log
// was trimmed: then it is told by what came next.
func (a *AsOf) Tell(before string, payload []byte, after string, next []byte) error {
	switch {
	case before != "":
		var err error
		a.Revision, err = revisionIn(payload) // none when it was removed
		return err
	case after == "": // as it is now
	case after == a.typ+".updated":
		written, err := revisionIn(next)
		a.Revision = written - 1
		return err
	case after == a.typ+".removed":
		return &artifact.Error{Code: artifact.CodeNotFound, Reason: artifact.ReasonHistoryTrimmed, Message: "the log no longer tells which version was current"}
	default: // it came later
		a.Revision = 0
	}
	return nil
}

func revisionIn(payload []byte) (int, error) {
	var said struct {
		Revision int `json:"revision"`
	}
	err := json.Unmarshal(payload, &said)
	return said.Revision, err
}

// Then makes a version, as it stands now, what it was then.
func (a *AsOf) Then(v *artifact.Artifact) {
	v.QualityScore = nil
	if a.superseded {
		v.SupersededBy = ""
	}
	v.IsLatest = v.Revision == a.Revision && (a.superseded || a.latest)
}
