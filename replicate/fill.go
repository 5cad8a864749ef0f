package replicate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
)

// KindAggregate is the kind of the sums over signals. They come in a back-fill
// alone: in the feed they ride on the signals.
const KindAggregate = "aggregate"

// FillKinds are the kinds of a back-fill in the order in which they come. Events
// are last, and only those up to where the feed takes over.
var FillKinds = []string{
	KindScope, KindSchema, KindMembership, KindAgent, KindRevocation,
	KindRevision, KindArtifact, KindLink, KindSignal, KindAggregate, KindVector, KindVectorModel, KindEvent,
}

// Types of frame in a back-fill. It begins with a hello, whose head is where the
// feed takes over unless the request named a place, and may end with a reset.
const (
	FrameFill = "fill" // rows as they are now
)

// A Place is where a page of a back-fill begins: after a key of a kind. Without a
// key it is the kind's start, without a kind the start of all.
type Place struct {
	Kind  string   `json:"kind"`
	After []string `json:"after"`
}

// Check returns an error for a place that is in no back-fill.
func (p Place) Check() error {
	if p.Kind != "" && !slices.Contains(FillKinds, p.Kind) || p.Kind == "" && p.After != nil {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonInvalidCursor,
			Message: fmt.Sprintf("%.40q is no kind of a back-fill", p.Kind),
		}
	}
	return nil
}

// Following returns the start of the kind after p's; nil when there is none.
func (p Place) Following() *Place {
	if i := slices.Index(FillKinds, p.Kind) + 1; i < len(FillKinds) {
		return &Place{Kind: FillKinds[i]}
	}
	return nil
}

// A Fill is a page of a back-fill: rows of one kind as they were at one time.
// Rows carry no seq, but for events.
type Fill struct {
	Kind string       `json:"kind"`
	Rows []Row        `json:"rows"`
	Head artifact.Seq `json:"head"`           // of the log at the time of the page, or later
	Next *Place       `json:"next,omitempty"` // nil: that was all
}

// A FillHello is the first frame of a back-fill.
type FillHello struct {
	Hello
	// Estimate is about how many rows of each kind there are in the scopes, for
	// showing progress.
	Estimate map[string]int64
	// EventFloor is up to where events are no longer kept.
	EventFloor artifact.Seq
}

// fillFrame is any frame of a back-fill.
type fillFrame struct {
	Type     string           `json:"type"`
	Hello    *Hello           `json:"hello,omitempty"`
	Estimate map[string]int64 `json:"estimate,omitempty"`
	Events   artifact.Seq     `json:"event_floor,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	Fill
}

// decodeFill reads one line. It refuses rows that are not what their hashes say.
func decodeFill(line []byte) (f fillFrame, err error) {
	if err := json.Unmarshal(line, &f); err != nil {
		return f, fmt.Errorf("back-fill frame: %w", err)
	}
	switch f.Type {
	case FrameHello:
		if f.Hello == nil {
			return f, errors.New("back-fill frame: a hello without its members")
		}
	case FrameFill:
		for i := range f.Rows {
			r := &f.Rows[i]
			if r.Kind != f.Kind || r.Op != Put && (r.Op != Emit || r.Kind != KindEvent || r.Event == nil) {
				return f, fmt.Errorf("back-fill frame: a page of %s has a row of %s", f.Kind, r.Kind)
			}
			if r.Op == Put && (len(r.Data) == 0 || artifact.HashBytes(r.Data) != r.Hash) {
				return f, fmt.Errorf("back-fill frame: %s %s is not what its hash says", r.Kind, r.Ref)
			}
		}
	case FrameReset:
	default:
		return f, fmt.Errorf("back-fill frame: unknown type %.20q", f.Type)
	}
	return f, nil
}

// A FillPage is a page ready to be sent.
type FillPage struct {
	Kind string
	Rows [][]byte // each as [Row.AppendJSON] wrote it
	Head artifact.Seq
	Next *Place
}

// appendJSON appends p's line to b.
func (p *FillPage) appendJSON(b []byte) ([]byte, error) {
	b = fmt.Appendf(b, `{"type":%q,"kind":%q,"head":%d`, FrameFill, p.Kind, p.Head)
	if p.Next != nil {
		next, err := json.Marshal(p.Next)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"next":`...), next...)
	}
	b = append(b, `,"rows":[`...)
	for i, row := range p.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, row...)
	}
	return append(b, "]}\n"...), nil
}
