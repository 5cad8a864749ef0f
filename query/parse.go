package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gowebpki/jcs"

	"github.com/scidex-ai/substrate/artifact"
)

// Parse reads a filter that stands at a path of a request. It returns nil for none,
// and all that is wrong with one.
func Parse(raw json.RawMessage, at string) (*Filter, []artifact.Problem) {
	if absent(raw) {
		return nil, nil
	}
	p := parser{}
	canonical, ok := p.canonical(raw, at)
	if !ok {
		return nil, p.problems
	}
	f := &Filter{canonical: canonical}
	p.node(&f.root, canonical, at, 1)
	if p.nodes > MaxNodes {
		p.report(at, "max_nodes", fmt.Sprintf("a filter has at most %d conditions, those around them among them, not %d", MaxNodes, p.nodes), nil)
	}
	if p.problems != nil {
		return nil, p.problems
	}
	return f, nil
}

func absent(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// A parser collects what is wrong.
type parser struct {
	problems []artifact.Problem
	nodes    int
}

func (p *parser) report(at, constraint, message string, value []byte) *artifact.Problem {
	if len(p.problems) == maxProblems {
		return new(artifact.Problem) // past that it is noise
	}
	p.problems = append(p.problems, artifact.Problem{Path: at, Constraint: constraint, Message: message, Value: received(value)})
	return &p.problems[len(p.problems)-1]
}

// maxProblems bounds how many faults of a filter are told.
const maxProblems = 50

// maxReceived bounds the value that a problem repeats.
const maxReceived = 200

func received(raw []byte) json.RawMessage {
	if len(raw) > maxReceived {
		return artifact.Received(fmt.Sprintf("(%d bytes of JSON)", len(raw)))
	}
	return bytes.Clone(raw)
}

func (p *parser) canonical(raw []byte, at string) ([]byte, bool) {
	if len(raw) > MaxBytes {
		p.report(at, "max_bytes", fmt.Sprintf("it is at most %d bytes, not %d", MaxBytes, len(raw)), nil)
		return nil, false
	}
	// Each part of a filter is an object and mostly in an array.
	if problems := artifact.CheckJSON(raw, at, maxJSONDepth); problems != nil {
		p.problems = append(p.problems, problems...)
		return nil, false
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		p.report(at, "json", err.Error(), nil)
		return nil, false
	}
	return canonical, true
}

const maxJSONDepth = 512

// object reads an object whose members are all among those that are known.
func (p *parser) object(raw []byte, at, what string, known ...string) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	if raw[0] != '{' || json.Unmarshal(raw, &members) != nil {
		p.report(at, "type", what+" is an object", raw)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, name) {
			p.unknown(at+"/"+artifact.EscapePointer(name), "unknown_field", what+" has no member "+strconv.Quote(cut(name))+"; there are "+strings.Join(known, ", "), name, known)
		}
	}
	return members
}

func cut(s string) string {
	if len(s) > maxReceived {
		return strings.ToValidUTF8(s[:maxReceived], "") + "…"
	}
	return s
}

func (p *parser) unknown(at, constraint, message, name string, known []string) {
	problem := p.report(at, constraint, message, nil)
	problem.Value = artifact.Received(name)
	if near := artifact.Nearest(name, known); near != "" {
		problem.Suggestion = artifact.Received(near)
	}
}

var forms = []string{"and", "or", "not", "field", "link", "signal"}

func (p *parser) node(n *node, raw []byte, at string, depth int) {
	p.nodes++
	if depth > MaxDepth {
		if depth == MaxDepth+1 {
			p.report(at, "max_depth", fmt.Sprintf("a filter is at most %d deep", MaxDepth), nil)
		}
		return
	}
	members := map[string]json.RawMessage{}
	if raw[0] != '{' || json.Unmarshal(raw, &members) != nil {
		p.report(at, "type", "a filter is an object with one of "+strings.Join(forms, ", "), raw)
		return
	}
	var form string
	for _, name := range forms {
		if _, ok := members[name]; !ok {
			continue
		}
		if form != "" {
			p.report(at, "one_form", "a filter has one of "+strings.Join(forms, ", ")+", not both "+form+" and "+name+": put them into an and", raw)
			return
		}
		form = name
	}
	switch form {
	case "field":
		n.field = p.fieldCondition(raw, at)
	case "":
		for _, name := range slices.Sorted(maps.Keys(members)) {
			p.unknown(at+"/"+artifact.EscapePointer(name), "unknown_field", strconv.Quote(cut(name))+" is none of "+strings.Join(forms, ", "), name, forms)
		}
		if len(members) == 0 {
			p.report(at, "required", "a filter has one of "+strings.Join(forms, ", "), raw)
		}
	default:
		p.object(raw, at, "a filter with "+form, form)
		at += "/" + form
		switch body := members[form]; form {
		case "and":
			n.and = p.junction(body, at, depth)
		case "or":
			n.or = p.junction(body, at, depth)
		case "not":
			n.not = new(node)
			p.node(n.not, body, at, depth+1)
		case "link":
			n.link = p.linkCondition(body, at)
		case "signal":
			n.signal = p.signalCondition(body, at)
		}
	}
}

func (p *parser) junction(raw []byte, at string, depth int) []node {
	var parts []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &parts) != nil {
		p.report(at, "type", "it is a list of filters", raw)
		return nil
	}
	if len(parts) == 0 {
		p.report(at, "min_items", "it lists at least one filter", raw)
	}
	if len(parts) > MaxNodes {
		p.nodes += len(parts) // told once, at the top
		return nil
	}
	nodes := make([]node, len(parts))
	for i := range parts {
		p.node(&nodes[i], parts[i], at+"/"+strconv.Itoa(i), depth+1)
	}
	return nodes
}

func (p *parser) text(members map[string]json.RawMessage, name, at string, required bool) string {
	raw, ok := members[name]
	if !ok {
		if required {
			p.report(at+"/"+name, "required", name+" is missing", nil)
		}
		return ""
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		p.report(at+"/"+name, "type", name+" is a text", raw)
		return ""
	}
	if len(s) > maxText {
		p.report(at+"/"+name, "max_bytes", fmt.Sprintf("%s is at most %d bytes", name, maxText), raw)
	}
	return s
}

func (p *parser) op(members map[string]json.RawMessage, at string, known []string) Op {
	before := len(p.problems)
	name := p.text(members, "op", at, true)
	if len(p.problems) == before && !slices.Contains(known, name) {
		p.unknown(at+"/op", "enum", "an op is one of "+strings.Join(known, ", "), name, known)
	}
	if len(p.problems) > before {
		return ""
	}
	return Op(name)
}

func (p *parser) fieldCondition(raw []byte, at string) *fieldCondition {
	members := p.object(raw, at, "a condition", "field", "op", "value")
	c := &fieldCondition{at: at + "/field"}
	name := p.text(members, "field", at, true)
	known := name != ""
	switch f := fieldNamed(name); {
	case f != nil:
		c.field = f
	case strings.HasPrefix(name, contentPrefix+"/"):
		var err error
		if c.pointer, err = parsePointer(name); err != nil {
			p.report(at+"/field", "json_pointer", err.Error(), members["field"])
			known = false
		}
	case known:
		names := fieldNames()
		message := "a field is one of " + strings.Join(names, ", ") + ", or a JSON pointer that begins with " + contentPrefix + "/"
		if strings.HasPrefix(name, "/") {
			p.report(at+"/field", "unknown_field", message, members["field"]).Suggestion = artifact.Received(cut(contentPrefix + name))
		} else {
			p.unknown(at+"/field", "unknown_field", message, name, append(names, contentPrefix+"/"))
		}
		known = false
	}
	c.op = p.op(members, at, ops)
	if !known || c.op == "" {
		return c
	}
	operand, given := members["value"]
	switch {
	case c.op == Exists:
		if c.field != nil && !c.field.optional {
			p.report(at+"/op", "op", c.field.name+" is always there", members["op"])
		}
		c.exists = p.truth(operand, at)
	case !given:
		p.report(at+"/value", "required", "the op "+string(c.op)+" takes a value", nil)
	case c.field == nil:
		c.values = p.values(operand, at+"/value", c.op, p.contentValue)
		p.ordered(c, at, members["op"])
	case !c.field.kind.allows(c.op):
		p.report(at+"/op", "op", fmt.Sprintf("%s is %s, which %s does not compare", c.field.name, c.field.kind, c.op), members["op"])
	default:
		c.values = p.values(operand, at+"/value", c.op, func(raw []byte, at string) value { return p.fieldValue(c.field, raw, at) })
	}
	return c
}

// truth reads the value of exists, which is true when it is left out.
func (p *parser) truth(raw []byte, at string) bool {
	switch string(raw) {
	case "", "true":
		return true
	case "false":
	default:
		p.report(at+"/value", "type", "the value of exists is true or false", raw)
	}
	return false
}

// ordered refuses to compare what has no order.
func (p *parser) ordered(c *fieldCondition, at string, op []byte) {
	for _, v := range c.values {
		if v.kind != 0 && !v.kind.allows(c.op) {
			p.report(at+"/op", "op", fmt.Sprintf("%s is not compared by %s", v.kind, c.op), op)
			return
		}
	}
}

func (p *parser) values(raw []byte, at string, op Op, read func(raw []byte, at string) value) []value {
	if !op.many() {
		return []value{read(raw, at)}
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		p.report(at, "type", fmt.Sprintf("the value of %s is a list", op), raw)
		return nil
	}
	if len(list) > MaxValues {
		p.report(at, "max_items", fmt.Sprintf("%s takes at most %d values, not %d", op, MaxValues, len(list)), nil)
		return nil
	}
	values := make([]value, len(list))
	for i := range list {
		values[i] = read(list[i], at+"/"+strconv.Itoa(i))
	}
	return values
}

// contentValue reads a value that is compared with what a content holds.
func (p *parser) contentValue(raw []byte, at string) value {
	switch raw[0] {
	case '"':
		return p.textValue(raw, at)
	case 't', 'f':
		return value{kind: boolean, text: string(raw)}
	case 'n':
		return value{kind: null}
	case '{', '[':
		p.report(at, "type", "a value is a text, a number, true, false or null", raw)
		return value{}
	}
	return p.numberValue(raw, at)
}

func (p *parser) textValue(raw []byte, at string) (v value) {
	v.kind = text
	if json.Unmarshal(raw, &v.text) != nil || len(v.text) > maxText {
		p.report(at, "max_bytes", fmt.Sprintf("a text to compare with is at most %d bytes", maxText), raw)
	}
	return v
}

func (p *parser) numberValue(raw []byte, at string) (v value) {
	v.kind = number
	var err error
	if v.num, err = strconv.ParseFloat(string(raw), 64); err != nil {
		p.report(at, "type", "it is no number", raw)
	}
	return v
}

// fieldValue reads a value that is compared with a field.
func (p *parser) fieldValue(f *field, raw []byte, at string) value {
	wrong := func() value {
		p.report(at, "type", f.name+" is "+f.kind.String(), raw)
		return value{}
	}
	isText := raw[0] == '"'
	switch f.kind {
	case text:
		if !isText {
			return wrong()
		}
		return p.textValue(raw, at)
	case number:
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			return wrong()
		}
		return p.numberValue(raw, at)
	case boolean:
		if raw[0] != 't' && raw[0] != 'f' {
			return wrong()
		}
		return value{kind: boolean, text: string(raw)}
	case moment:
		var s string
		if !isText || json.Unmarshal(raw, &s) != nil {
			return wrong()
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		switch {
		case err != nil:
			return wrong()
		case t.Year() < 1 || t.Year() > 9999:
			return wrong()
		case !t.Equal(t.Truncate(time.Millisecond)):
			p.report(at, "type", "times are kept to the millisecond", raw).Suggestion = artifact.Received(t.Truncate(time.Millisecond).Format(time.RFC3339Nano))
		}
		return value{kind: moment, at: t.UTC()}
	case ref:
		var s string
		if !isText || json.Unmarshal(raw, &s) != nil {
			return wrong()
		}
		r, err := artifact.ParseRef(s)
		if err != nil {
			return wrong()
		}
		if r.IsPinned() {
			p.report(at, "type", "artifacts are listed as they are now: the ref is type:id, without a hash", raw).Suggestion = artifact.Received(r.Current().String())
		}
		return value{kind: ref, ref: r.Current()}
	case null:
	}
	return wrong()
}

func (p *parser) linkCondition(raw []byte, at string) *linkCondition {
	members := p.object(raw, at, "a condition on links", "predicate", "direction", "min", "max", "to", "types")
	c := &linkCondition{predicate: p.text(members, "predicate", at, false), least: 1, most: -1}
	directions := []string{"in", "out"}
	switch d := p.text(members, "direction", at, false); d {
	case "", "out":
	case "in":
		c.in = true
	default:
		p.unknown(at+"/direction", "enum", "a direction is out, of links from the artifact, or in, of links to it", d, directions)
	}
	if _, ok := members["predicate"]; ok && c.predicate == "" {
		p.report(at+"/predicate", "required", "a predicate is not empty: leave it out for any", members["predicate"])
	}
	count := func(name string, into *int) {
		raw, ok := members[name]
		if !ok {
			return
		}
		n, err := strconv.Atoi(string(raw))
		if err != nil || n < 0 || n > maxLinks {
			p.report(at+"/"+name, "range", fmt.Sprintf("%s is a whole number from 0 to %d", name, maxLinks), raw)
			return
		}
		*into = n
	}
	count("max", &c.most)
	if c.most >= 0 {
		c.least = 0
	}
	count("min", &c.least)
	if c.most >= 0 && c.least > c.most {
		p.report(at+"/max", "range", "max is not less than min", members["max"])
	}
	if raw, ok := members["to"]; ok {
		v := p.fieldValue(&field{name: "to", kind: ref}, raw, at+"/to")
		c.to = &v.ref
	}
	if raw, ok := members["types"]; ok {
		for i, v := range p.values(raw, at+"/types", In, func(raw []byte, at string) value { return p.fieldValue(&field{name: "a type", kind: text}, raw, at) }) {
			if v.kind == text && !artifact.ValidType(v.text) {
				p.report(at+"/types/"+strconv.Itoa(i), "type_name", "it is no name of a type", nil).Value = artifact.Received(v.text)
			}
			c.types = append(c.types, v.text)
		}
		if len(c.types) == 0 {
			p.report(at+"/types", "min_items", "it lists at least one type", raw)
		}
	}
	return c
}

// maxLinks bounds what links are counted up to.
const maxLinks = 1_000_000

func (p *parser) signalCondition(raw []byte, at string) *signalCondition {
	members := p.object(raw, at, "a condition on signals", "kind", "dimension", "agg", "op", "value")
	c := &signalCondition{Aggregate: p.aggregate(members, at)}
	known := slices.DeleteFunc(slices.Clone(ops), func(op string) bool { return op != string(Exists) && !number.allows(Op(op)) })
	c.op = p.op(members, at, known)
	operand, given := members["value"]
	switch {
	case c.op == "":
	case c.op == Exists:
		if !c.optional() {
			p.report(at+"/op", "op", "of no signals only mean, min and max are missing", members["op"])
		}
		c.exists = p.truth(operand, at)
	case !given:
		p.report(at+"/value", "required", "the op "+string(c.op)+" takes a value", nil)
	default:
		of := &field{name: c.Agg, kind: number}
		c.values = p.values(operand, at+"/value", c.op, func(raw []byte, at string) value { return p.fieldValue(of, raw, at) })
	}
	return c
}

// aggregate reads which number is meant.
func (p *parser) aggregate(members map[string]json.RawMessage, at string) (a Aggregate) {
	a.at = at
	a.Kind, a.Dimension = p.text(members, "kind", at, true), p.text(members, "dimension", at, false)
	a.Agg = p.text(members, "agg", at, true)
	if a.Agg != "" && !slices.Contains(Aggregates, a.Agg) {
		p.unknown(at+"/agg", "enum", "an agg is one of "+strings.Join(Aggregates, ", "), a.Agg, Aggregates)
	}
	return a
}
