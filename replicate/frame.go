package replicate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Types of frame. One frame is one line of JSON.
const (
	FrameHello = "hello" // first: what the source is
	FramePage  = "page"  // rows up to the end of a commit
	FramePart  = "part"  // rows of a commit that more rows of belong to
	FrameBeat  = "hb"    // the source lives; moves the cursor over rows not for this follower
	FrameReset = "reset" // last: the stream must be begun anew, and why
)

// Limits of a page.
const (
	MaxPageRows  = 1000
	MaxPageBytes = 1 << 20 // a single larger row makes a larger page
)

// WireVersion is the version of rows and frames. A reader older than a hello's
// MinReader cannot read the feed.
const WireVersion = 2

// MaxFrameBytes bounds a line that a client reads: a page of the largest rows.
const MaxFrameBytes = 8 << 20

// BeatInterval is how often a quiet stream beats.
const BeatInterval = 5 * time.Second

// A Frame is any frame of the stream, by Type.
type Frame struct {
	Type   string        `json:"type"`
	Hello  *Hello        `json:"hello,omitempty"`
	From   artifact.Seq  `json:"from"`  // page, part: the cursor before it
	To     artifact.Seq  `json:"to"`    // page, part, hb: the cursor after it
	Chain  artifact.Hash `json:"chain"` // page, hb: the chain at To
	Head   artifact.Seq  `json:"head"`  // page, hb: the last seq of the log
	Rows   []Row         `json:"rows,omitempty"`
	At     time.Time     `json:"at,omitzero"`
	Reason string        `json:"reason,omitempty"` // reset
}

// A Hello says what a source is.
type Hello struct {
	HubID     string       `json:"hub_id"`
	Epoch     int          `json:"epoch"`
	Head      artifact.Seq `json:"head"`
	Floor     artifact.Seq `json:"floor"` // the smallest cursor that can still be resumed
	Schema    int          `json:"schema"`
	MinReader int          `json:"min_reader"`
	BeatS     int          `json:"hb_s"`
	Scopes    []string     `json:"scopes"`
	// Prev is, for each of these scopes, its last public row at or before the
	// position that the stream begins at; 0 for none. A back-fill begins at none.
	Prev map[string]artifact.Seq `json:"prev,omitzero"`
}

// DecodeFrame reads one line.
func DecodeFrame(line []byte) (Frame, error) {
	var f Frame
	if err := json.Unmarshal(line, &f); err != nil {
		return Frame{}, fmt.Errorf("feed frame: %w", err)
	}
	switch f.Type {
	case FrameHello:
		if f.Hello == nil {
			return Frame{}, fmt.Errorf("feed frame: a hello without its members")
		}
	case FramePage, FramePart:
		if err := checkRows(&f); err != nil {
			return Frame{}, err
		}
	case FrameBeat, FrameReset:
	default:
		return Frame{}, fmt.Errorf("feed frame: unknown type %.20q", f.Type)
	}
	return f, nil
}

// checkRows refuses a page whose rows are out of order or not what their hashes
// say.
func checkRows(f *Frame) error {
	last := f.From
	for i := range f.Rows {
		r := &f.Rows[i]
		if r.Seq <= last || r.Seq > f.To || r.Commit < r.Seq || r.Prev >= r.Seq {
			return fmt.Errorf("feed frame: row %d stands out of order after %d", r.Seq, last)
		}
		last = r.Seq
		if r.Op == Put && len(r.Data) > 0 && artifact.HashBytes(r.Data) != r.Hash {
			return fmt.Errorf("feed frame: row %d is not what its hash says", r.Seq)
		}
	}
	if f.To < f.From {
		return fmt.Errorf("feed frame: a page from %d back to %d", f.From, f.To)
	}
	return nil
}
