package node

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A revision is a [replicate.Revision] whose provenance is kept as it is.
type revision struct {
	replicate.Revision
	Provenance json.RawMessage `json:"provenance"`
	Redaction  json.RawMessage `json:"redaction"` // kept as it is too; nil for none
}

// decodeHead reads the data of a head. Decoding was a fifth of the time that a
// batch takes, and a row's data is canonical: its members stand in a known order
// without space between them, and are read as they come. Whatever differs, be it
// an escape in a text or a member that this build does not know, encoding/json
// reads.
func decodeHead(data []byte) (h replicate.Head, err error) {
	c := cursor{rest: data, ok: true}
	h = replicate.Head{
		ContentHash:   c.hash(`{"content_hash":`),
		CreatedAt:     c.time(`,"created_at":`),
		CreatedBy:     c.text(`,"created_by":`),
		ID:            c.text(`,"id":`),
		IsLatest:      c.boolean(`,"is_latest":`),
		QualityScore:  c.float(`,"quality_score":`),
		Revision:      c.integer(`,"revision":`),
		SchemaVersion: c.integer(`,"schema_version":`),
		Scope:         c.text(`,"scope":`),
		State:         c.text(`,"state":`),
		SupersededBy:  c.text(`,"superseded_by":`),
		Title:         c.text(`,"title":`),
		Type:          c.text(`,"type":`),
		UpdatedAt:     c.time(`,"updated_at":`),
		UpdatedBy:     c.text(`,"updated_by":`),
	}
	if c.end() {
		return h, nil
	}
	h = replicate.Head{}
	return h, json.Unmarshal(data, &h)
}

// decodeRevision reads the data of a revision, as [decodeHead] does.
func decodeRevision(data []byte) (v revision, err error) {
	c := cursor{rest: data, ok: true}
	v.ContentHash = c.hash(`{"content_hash":`)
	v.CreatedAt = c.time(`,"created_at":`)
	v.CreatedBy = c.text(`,"created_by":`)
	v.ID = c.text(`,"id":`)
	v.Note = c.text(`,"note":`)
	v.Provenance = c.until(`,"provenance":`, `,"revision":`)
	v.Revision.Revision = c.integer(`,"revision":`)
	v.SchemaVersion = c.integer(`,"schema_version":`)
	v.Scope = c.text(`,"scope":`)
	v.State = c.text(`,"state":`)
	v.Title = c.text(`,"title":`)
	v.Type = c.text(`,"type":`)
	if c.end() {
		return v, nil
	}
	v = revision{}
	return v, json.Unmarshal(data, &v)
}

// A cursor reads canonical JSON from its start. Each method reads one value,
// after the text that must stand before it; ok is false from the first one that
// is not as expected.
type cursor struct {
	rest []byte
	ok   bool
}

func (c *cursor) skip(before string) bool {
	if c.ok && len(c.rest) > len(before) && string(c.rest[:len(before)]) == before {
		c.rest = c.rest[len(before):]
		return true
	}
	c.ok = false
	return false
}

// quoted reads a string without escapes.
func (c *cursor) quoted(before string) []byte {
	if !c.skip(before) || c.rest[0] != '"' {
		c.ok = false
		return nil
	}
	n := bytes.IndexByte(c.rest[1:], '"')
	if n < 0 || bytes.IndexByte(c.rest[1:1+n], '\\') >= 0 {
		c.ok = false
		return nil
	}
	s := c.rest[1 : 1+n]
	c.rest = c.rest[n+2:]
	return s
}

func (c *cursor) text(before string) string {
	s := c.quoted(before)
	for _, b := range s {
		if b < ' ' || b >= utf8.RuneSelf {
			c.ok = c.ok && b >= utf8.RuneSelf && utf8.Valid(s)
			if !c.ok {
				return ""
			}
		}
	}
	return string(s)
}

func (c *cursor) hash(before string) (h artifact.Hash) {
	if err := h.UnmarshalText(c.quoted(before)); err != nil {
		c.ok = false
	}
	return h
}

func (c *cursor) time(before string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, string(c.quoted(before)))
	if err != nil {
		c.ok = false
	}
	return t
}

// word reads all up to the next comma or brace.
func (c *cursor) word(before string) string {
	if !c.skip(before) {
		return ""
	}
	n := bytes.IndexAny(c.rest, ",}")
	if n < 0 {
		c.ok = false
		return ""
	}
	s := c.rest[:n]
	c.rest = c.rest[n:]
	return string(s)
}

func (c *cursor) integer(before string) int {
	w := c.word(before)
	n, err := strconv.Atoi(w)
	if err != nil || w[0] == '+' || w[0] == '0' && w != "0" {
		c.ok = false
	}
	return n
}

func (c *cursor) boolean(before string) bool {
	w := c.word(before)
	if w != "true" && w != "false" {
		c.ok = false
	}
	return w == "true"
}

// float reads a number or null.
func (c *cursor) float(before string) *float64 {
	w := c.word(before)
	if w == "null" {
		return nil
	}
	var f float64
	if json.Unmarshal([]byte(w), &f) != nil {
		c.ok = false
	}
	return &f
}

// until reads a JSON value up to the text that must stand behind it.
func (c *cursor) until(before, behind string) json.RawMessage {
	if !c.skip(before) {
		return nil
	}
	n := bytes.Index(c.rest, []byte(behind))
	if n < 0 || !json.Valid(c.rest[:n]) {
		c.ok = false
		return nil
	}
	raw := c.rest[:n]
	c.rest = c.rest[n:]
	return raw
}

// end reports whether all was as expected, up to the closing brace.
func (c *cursor) end() bool { return c.ok && string(c.rest) == "}" }
