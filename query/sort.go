package query

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// MaxSortKeys is how many keys a sort has at most.
const MaxSortKeys = 4

// A Sort is the order of a list: by its keys, then by type and id, so that it has
// no ties. What has no value comes last, whatever the direction. Values of a
// content are in the order of numbers, then texts, true and false among them; an
// array stands for the least of its values, a text for its first 250 characters.
type Sort struct {
	keys      []sortKey
	canonical []byte
}

// A sortKey is exactly one of a field, a pointer into the content and a sum of
// signals.
type sortKey struct {
	field   *field
	pointer pointer
	signal  *Aggregate
	desc    bool
	at      string // where it stands in the request
}

// sortable are the fields that lists are sorted by.
var sortable = []string{"created_at", "updated_at", "title", "quality_score"}

// ParseSort reads a sort that stands at a path of a request: a list of keys, each
// a name with - before it for descending, or an object {by, order} or {signal,
// order}. Nil, for none, is newest first.
func ParseSort(raw json.RawMessage, at string) (*Sort, []artifact.Problem) {
	if absent(raw) {
		return nil, nil
	}
	p := parser{}
	canonical, ok := p.canonical(raw, at)
	if !ok {
		return nil, p.problems
	}
	var keys []json.RawMessage
	if canonical[0] != '[' || json.Unmarshal(canonical, &keys) != nil {
		p.report(at, "type", `a sort is a list of keys, such as ["-created_at"]`, canonical)
		return nil, p.problems
	}
	switch {
	case len(keys) == 0:
		return nil, nil
	case len(keys) > MaxSortKeys:
		p.report(at, "max_items", fmt.Sprintf("a sort has at most %d keys, not %d", MaxSortKeys, len(keys)), nil)
		return nil, p.problems
	}
	s := &Sort{canonical: canonical, keys: make([]sortKey, len(keys))}
	for i := range keys {
		s.keys[i] = p.sortKey(keys[i], at+"/"+strconv.Itoa(i))
	}
	if p.problems != nil {
		return nil, p.problems
	}
	if len(s.keys) == 1 && s.keys[0].field != nil && s.keys[0].field.name == "created_at" && s.keys[0].desc {
		return nil, nil // as without
	}
	return s, nil
}

func (p *parser) sortKey(raw []byte, at string) (k sortKey) {
	k.at = at
	if raw[0] == '"' {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			name, k.desc = strings.CutPrefix(name, "-")
			p.sortBy(&k, name, raw, at)
		}
		return k
	}
	members := p.object(raw, at, "a key", "by", "order", "signal")
	if members == nil {
		return k
	}
	orders := []string{"asc", "desc"}
	order := p.text(members, "order", at, false)
	if order != "" && !slices.Contains(orders, order) {
		p.unknown(at+"/order", "enum", "an order is asc, the default, or desc", order, orders)
	}
	k.desc = order == "desc"
	_, by := members["by"]
	sums, signal := members["signal"]
	switch {
	case by == signal:
		p.report(at, "one_form", "a key has either by or signal", raw)
	case by:
		if name := p.text(members, "by", at, true); name != "" {
			p.sortBy(&k, name, members["by"], at+"/by")
		}
	default:
		if members = p.object(sums, at+"/signal", "a sum of signals", "kind", "dimension", "agg"); members != nil {
			g := p.aggregate(members, at+"/signal")
			k.signal = &g
		}
	}
	return k
}

func (p *parser) sortBy(k *sortKey, name string, raw []byte, at string) {
	if strings.HasPrefix(name, contentPrefix+"/") {
		var err error
		if k.pointer, err = parsePointer(name); err != nil {
			p.report(at, "json_pointer", err.Error(), raw)
		}
		return
	}
	if !slices.Contains(sortable, name) {
		p.unknown(at, "enum", "lists are sorted by "+strings.Join(sortable, ", ")+", a JSON pointer that begins with "+contentPrefix+"/, or a signal", name, sortable)
		return
	}
	k.field = fieldNamed(name)
}

// Check returns what is wrong with the sort for artifacts of one type.
func (s *Sort) Check(schema *artifact.Schema) (problems []artifact.Problem) {
	if s != nil {
		for i := range s.keys {
			if g := s.keys[i].signal; g != nil {
				problems = append(problems, g.check(schema)...)
			}
		}
	}
	return problems
}

// CheckEdge returns what is wrong with the sort for links or signals.
func (s *Sort) CheckEdge(typ string) (problems []artifact.Problem) {
	e := edgeOf(typ)
	if s != nil && e != nil {
		for i := range s.keys {
			if k := &s.keys[i]; k.signal != nil {
				problems = append(problems, e.checkSignal(k.signal.at)...)
			} else {
				problems = append(problems, e.check(k.field, k.pointer, k.at)...)
			}
		}
	}
	return problems
}

// Canonical returns the sort's canonical JSON, nil for no sort.
func (s *Sort) Canonical() []byte {
	if s == nil {
		return nil
	}
	return s.canonical
}

// Paths returns the JSON pointers into the content that the sort names.
func (s *Sort) Paths() (paths []string) {
	if s == nil {
		return nil
	}
	for i := range s.keys {
		if k := &s.keys[i]; k.field == nil && k.signal == nil {
			paths = append(paths, k.pointer.text)
		}
	}
	return paths
}
