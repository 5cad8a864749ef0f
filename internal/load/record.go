package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// signalType is the type of lines that become signals.
const signalType = "signal"

// rates is the predicate that leads from a signal's line to what it is on.
const rates = "rates"

// A record is one line: {"type", "id", "title", "content", "links"}, of which
// links alone may be absent.
type record struct {
	typ, id, title string
	content        json.RawMessage
	links          []link
	signal         *verb.SignalRequest // of a line of type signal
}

// A link is {"rel", "to"}.
type link struct{ rel, to string }

func (r *record) ref() string { return r.typ + ":" + r.id }

func problem(path, constraint, message string) artifact.Problem {
	return artifact.Problem{Path: path, Constraint: constraint, Message: message}
}

// parse reads a line and names every fault that can be seen without the hub. The
// record holds what could be read even so.
func parse(line []byte, imported bool) (record, []artifact.Problem) {
	p := parser{problems: artifact.CheckJSON(line, "", artifact.MaxContentDepth+1)}
	p.sound = p.problems == nil
	if !p.sound && !json.Valid(line) {
		return record{}, p.problems
	}
	var r record
	fields, ok := p.object(line, "", "a line")
	if !ok {
		return r, p.problems
	}
	r.typ, r.id, r.title = p.text(fields, "", "type"), p.text(fields, "", "id"), p.text(fields, "", "title")
	if r.typ != "" && !artifact.ValidType(r.typ) {
		p.note("/type", "type_name", "a type's name is [a-z][a-z0-9_]{0,63}")
	}
	if r.id != "" && !artifact.ValidID(r.id) {
		p.note("/id", "id_strategy", "an id is 1 to 256 bytes of printable ASCII without space or @")
	}
	if r.title != "" {
		if q := artifact.CheckTitle(r.title, "/title"); q != nil {
			p.problems = append(p.problems, *q)
		}
	}
	r.content = fields["content"]
	content := p.content(fields)
	r.links = p.links(fields["links"])
	if r.typ == signalType && content != nil {
		r.signal = p.signal(&r, content, imported)
	}
	p.unknown(fields, "", "type", "id", "title", "content", "links")
	return r, p.problems
}

// parseLinks reads of a line that parse has passed what its links need.
func parseLinks(line []byte) (r record, err error) {
	var v struct {
		Type  string `json:"type"`
		ID    string `json:"id"`
		Links []struct {
			Rel string `json:"rel"`
			To  string `json:"to"`
		} `json:"links"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return r, err
	}
	r.typ, r.id, r.links = v.Type, v.ID, make([]link, len(v.Links))
	for i, k := range v.Links {
		r.links[i] = link{k.Rel, k.To}
	}
	return r, nil
}

// A parser gathers the faults of a line.
type parser struct {
	problems []artifact.Problem
	sound    bool // as JSON
}

func (p *parser) note(path, constraint, message string) {
	p.problems = append(p.problems, problem(path, constraint, message))
}

type fields = map[string]json.RawMessage

func (p *parser) object(raw []byte, at, what string) (f fields, ok bool) {
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &f) != nil {
		p.note(at, "type", what+" is a JSON object")
		return nil, false
	}
	return f, true
}

// text returns a required member that is a string and not empty.
func (p *parser) text(f fields, at, name string) (s string) {
	raw, ok := f[name]
	switch {
	case !ok:
		p.note(at+"/"+name, "required", name+" is required")
	case len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil:
		p.note(at+"/"+name, "type", name+" is a string")
	case s == "":
		p.note(at+"/"+name, "required", name+" must not be empty")
	}
	return s
}

func (p *parser) unknown(f fields, at string, known ...string) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, name) {
			p.note(at+"/"+artifact.EscapePointer(name), "unknown_field", "the fields here are "+strings.Join(known, ", "))
		}
	}
}

// maxGrowth is more than the canonical form of JSON can be longer than the
// JSON: 1e20 becomes 21 digits.
const maxGrowth = 8

func (p *parser) content(f fields) fields {
	raw, ok := f["content"]
	if !ok {
		p.note("/content", "required", "content is required")
		return nil
	}
	content, ok := p.object(raw, "/content", "content")
	if ok && p.sound && len(raw) > artifact.MaxContentBytes/maxGrowth {
		_, problems := artifact.Canonical(raw, "/content")
		p.problems = append(p.problems, problems...)
	}
	return content
}

func (p *parser) links(raw json.RawMessage) []link {
	if raw == nil {
		return nil
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		p.note("/links", "type", "links is an array of {rel, to}")
		return nil
	}
	links := make([]link, len(list))
	for i, raw := range list {
		at := "/links/" + strconv.Itoa(i)
		f, ok := p.object(raw, at, "a link")
		if !ok {
			continue
		}
		k := link{p.text(f, at, "rel"), p.text(f, at, "to")}
		if k.to != "" {
			if _, err := artifact.ParseRef(k.to); err != nil {
				p.note(at+"/to", "ref", "a ref is type:id or type:id@sha256:<64 hex>")
			}
		}
		p.unknown(f, at, "rel", "to")
		links[i] = k
	}
	return links
}

// signal makes the write of a line of type signal: content holds kind and value,
// may hold by, dimension, weight and reason, and what else it holds is metadata.
func (p *parser) signal(r *record, content fields, imported bool) *verb.SignalRequest {
	s := &verb.SignalRequest{Kind: p.text(content, "/content", "kind")}
	if len(r.links) != 1 || r.links[0].rel != rates {
		p.note("/links", "signal_target", "a signal has one link, "+rates+", to what it is on")
	} else {
		s.Ref = r.links[0].to
	}
	if _, ok := content["value"]; ok {
		s.Value = p.number(content, "value")
	} else {
		p.note("/content/value", "required", "value is required")
	}
	if _, ok := content["weight"]; ok {
		s.Weight = p.number(content, "weight")
	}
	if _, ok := content["dimension"]; ok {
		s.Dimension = p.text(content, "/content", "dimension")
	}
	if _, ok := content["reason"]; ok {
		s.Reason = p.text(content, "/content", "reason")
	}
	rest := maps.Clone(content)
	maps.DeleteFunc(rest, func(name string, _ json.RawMessage) bool {
		return slices.Contains([]string{"kind", "value", "weight", "dimension", "reason"}, name)
	})
	if imported {
		s.Voter = voter(p.text(content, "/content", "by"))
		delete(rest, "by")
	}
	if len(rest) > 0 {
		raw, err := json.Marshal(rest)
		if err != nil {
			p.note("/content", "json", err.Error())
		}
		s.Metadata = raw
	}
	return s
}

func (p *parser) number(f fields, name string) json.Number {
	raw := bytes.TrimSpace(f[name])
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		p.note("/content/"+name, "type", name+" is a number")
		return ""
	}
	return json.Number(raw)
}

// voterPrefix begins the names of voters that an import brings.
const voterPrefix = "import:"

// voter returns the id of a voter that a line names. Bytes that an id cannot hold
// are written as %XX, as is %, so that two names stay two; a name too long for an
// id ends in its hash.
func voter(by string) string {
	var b strings.Builder
	b.WriteString(voterPrefix)
	for _, c := range []byte(by) {
		if c <= ' ' || c > '~' || c == '@' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if b.Len() <= artifact.MaxIDLength {
		return b.String()
	}
	hash := artifact.HashBytes([]byte(by)).String()[len("sha256:"):]
	return b.String()[:artifact.MaxIDLength-1-len(hash)] + "-" + hash
}
