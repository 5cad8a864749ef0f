package load

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/scidex-ai/substrate/artifact"
)

// A Summary is what became of a load.
type Summary struct {
	Artifacts        Counts       `json:"artifacts"`
	Links            LinkCounts   `json:"links"`
	Signals          Counts       `json:"signals"`
	Lines            int64        `json:"lines"` // that were looked at, blank ones not counted
	RejectedLines    int64        `json:"rejected_lines"`
	Seconds          float64      `json:"seconds"`
	RecordsPerSecond float64      `json:"records_per_second"` // artifacts, links and signals that the hub has now
	LastSeq          artifact.Seq `json:"last_seq"`           // 0 when nothing was written
	ConsistencyToken string       `json:"consistency_token"`  // of LastSeq

	// ResumeFrom is the From that continues a load that ended early. It is 0
	// when the load did not, and while artifacts were still to come: then only
	// the whole load again makes sure of all links.
	ResumeFrom int64 `json:"resume_from,omitempty"`
}

// Counts counts records by what became of them.
type Counts struct {
	Created   int64 `json:"created"`
	Unchanged int64 `json:"unchanged"` // the hub had it
	Rejected  int64 `json:"rejected"`
}

// LinkCounts counts links.
type LinkCounts struct {
	Counts
	Skipped int64 `json:"skipped"` // links of rejected artifacts
}

func (c Counts) loaded() int64 { return c.Created + c.Unchanged }

func (s *Summary) finish(took time.Duration) {
	s.Seconds = math.Round(took.Seconds()*1000) / 1000
	if took > 0 {
		n := s.Artifacts.loaded() + s.Links.loaded() + s.Signals.loaded()
		s.RecordsPerSecond = math.Round(float64(n) / took.Seconds())
	}
}

// A Rejected is one fault of a line that is left out, whole or in part.
type Rejected struct {
	File       string `json:"file"`
	Line       int    `json:"line"` // from 1
	Path       string `json:"path"` // JSON pointer into the line; "" is the whole
	Constraint string `json:"constraint"`
	Message    string `json:"message"`

	// Record is the line, as a JSON string if it is no JSON. It goes with the
	// first fault of a line only; with others, and for lines too long, it is null.
	Record json.RawMessage `json:"record"`
}

// String returns "file:line: /path: rule: message", fit for a terminal.
func (r Rejected) String() string {
	path := r.Path
	if path == "" {
		path = "/"
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}, fmt.Sprintf("%s:%d: %s: %s: %s", r.File, r.Line, path, r.Constraint, r.Message))
}

// asRecord returns a line as JSON.
func asRecord(line []byte) json.RawMessage {
	if line == nil {
		return nil
	}
	if json.Valid(line) {
		return line
	}
	raw, err := json.Marshal(string(line))
	if err != nil { // strings always encode
		return nil
	}
	return raw
}
