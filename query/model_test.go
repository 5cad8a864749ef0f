package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/scidex-ai/substrate/artifact"
)

// A thing is an artifact of the model that filters are tried on.
type thing struct {
	typ, id, scope, title, state, by, replacedBy string
	revision                                     int
	created, updated                             time.Time
	quality                                      *float64
	content                                      []byte
	signals                                      map[[2]string][3]float64 // n, voters, sum by kind and dimension
	votes                                        map[[2]string][]vote     // of those, oldest first
}

type vote struct {
	voter string
	value float64
}

func (t *thing) ref() string { return t.typ + ":" + t.id }

type edge struct{ from, predicate, to, scope string }

// A world is all there is, and what may be seen of it.
type world struct {
	things []*thing
	edges  []edge
	scopes []string
}

func (w *world) find(ref string) *thing {
	for _, t := range w.things {
		if t.ref() == ref && slices.Contains(w.scopes, t.scope) {
			return t
		}
	}
	return nil
}

// meets is what a filter says, without SQL.
func (w *world) meets(n *node, t *thing) bool {
	switch {
	case n.and != nil:
		return !slices.ContainsFunc(n.and, func(n node) bool { return !w.meets(&n, t) })
	case n.or != nil:
		return slices.ContainsFunc(n.or, func(n node) bool { return w.meets(&n, t) })
	case n.not != nil:
		return !w.meets(n.not, t)
	case n.link != nil:
		return w.meetsLink(n.link, t)
	case n.signal != nil:
		sum := sumOf(t, n.signal.Aggregate)
		if n.signal.op == Exists {
			return (sum != nil) == n.signal.exists
		}
		return meetsValues(n.signal.op, sum, n.signal.values)
	}
	c := n.field
	var values []any
	var exists bool
	if c.field == nil {
		values, exists = valuesAt(t.content, c.pointer.tokens)
	} else {
		v := map[string]any{
			"type": t.typ, "id": t.id, "ref": t.ref(), "scope": t.scope, "title": t.title, "state": t.state, "revision": float64(t.revision),
			"schema_version": 1.0, "created_at": t.created, "updated_at": t.updated, "created_by": t.by, "updated_by": t.by,
			"is_latest": true, "superseded_by": t.replacedBy, "quality_score": nil,
		}[c.field.name]
		if t.quality != nil && c.field.name == "quality_score" {
			v = *t.quality
		}
		if exists = v != nil && v != ""; exists || !c.field.optional {
			values = []any{v}
		}
	}
	if c.op == Exists {
		return exists == c.exists
	}
	return meetsValues(c.op, values, c.values)
}

func meetsValues(op Op, have []any, want []value) bool {
	op, denied := op.denied()
	return denied != slices.ContainsFunc(have, func(h any) bool {
		return slices.ContainsFunc(want, func(v value) bool { return meetsValue(op, h, v) })
	})
}

func meetsValue(op Op, have any, v value) bool {
	order := 0
	switch h := have.(type) {
	case nil:
		return v.kind == null
	case bool:
		return v.kind == boolean && strconv.FormatBool(h) == v.text
	case float64:
		if v.kind != number {
			return false
		}
		order = cmp.Compare(h, v.num)
	case time.Time:
		order = h.Compare(v.at)
	case string:
		want := v.text
		if v.kind == ref {
			want = v.ref.String()
		} else if v.kind != text {
			return false
		}
		switch op { //nolint:exhaustive // the others are told apart elsewhere
		case Contains:
			return strings.Contains(h, want)
		case StartsWith:
			return strings.HasPrefix(h, want)
		}
		order = strings.Compare(h, want)
	}
	switch op { //nolint:exhaustive // the others are told apart elsewhere
	case Lt:
		return order < 0
	case Lte:
		return order <= 0
	case Gt:
		return order > 0
	case Gte:
		return order >= 0
	}
	return order == 0
}

// valuesAt returns the values that stand at a place, and whether there is anything.
func valuesAt(content []byte, tokens []string) ([]any, bool) {
	var doc any
	if err := json.Unmarshal(content, &doc); err != nil {
		panic(err)
	}
	for _, token := range tokens {
		var ok bool
		switch d := doc.(type) {
		case map[string]any:
			doc, ok = d[token]
		case []any:
			for i := range d {
				if strconv.Itoa(i) == token {
					doc, ok = d[i], true
				}
			}
		}
		if !ok {
			return nil, false
		}
	}
	all, isList := doc.([]any)
	if !isList {
		all = []any{doc}
	}
	var values []any
	for _, v := range all {
		switch v.(type) {
		case map[string]any, []any:
		default:
			values = append(values, v)
		}
	}
	return values, true
}

func (w *world) meetsLink(c *linkCondition, t *thing) bool {
	n := 0
	for _, e := range w.edges {
		own, other := e.from, e.to
		if c.in {
			own, other = other, own
		}
		end := w.find(other)
		if own == t.ref() && slices.Contains(w.scopes, e.scope) && end != nil && (c.predicate == "" || c.predicate == e.predicate) &&
			(c.to == nil || c.to.String() == other) && (len(c.types) == 0 || slices.Contains(c.types, end.typ)) {
			n++
		}
	}
	return n >= c.least && (c.most < 0 || n <= c.most)
}

func sumOf(t *thing, g Aggregate) []any {
	s, ok := t.signals[[2]string{g.Kind, g.Dimension}]
	switch {
	case g.Agg == "mean" && (!ok || s[0] == 0):
		return nil
	case g.Agg == "mean":
		return []any{s[2] / s[0]}
	case g.extreme():
		last := map[string]float64{}
		for i, v := range t.votes[[2]string{g.Kind, g.Dimension}] {
			voter := v.voter
			if g.Kind != "vote" || t.typ != "gene" { // all of one voter's count
				voter = strconv.Itoa(i)
			}
			last[voter] = v.value
		}
		values := slices.Sorted(maps.Values(last))
		switch {
		case len(values) == 0:
			return nil
		case g.Agg == "min":
			return []any{values[0]}
		}
		return []any{values[len(values)-1]}
	}
	return []any{s[slices.Index(Aggregates, g.Agg)]}
}

// keys returns what a thing is sorted by.
func (w *world) keys(s *Sort, t *thing) (keys []any) {
	for _, k := range s.keys {
		switch {
		case k.signal != nil:
			keys = append(keys, append(sumOf(t, *k.signal), nil)[0])
		case k.field == nil:
			values, _ := valuesAt(t.content, k.pointer.tokens)
			var num, txt any
			for _, v := range values {
				switch v := v.(type) {
				case float64:
					if num == nil || v < num.(float64) {
						num = v
					}
				case string, bool:
					s := fmt.Sprint(v)
					if utf8.RuneCountInString(s) > artifact.MaxFacetText {
						s = string([]rune(s)[:artifact.MaxFacetText])
					}
					if txt == nil || s < txt.(string) {
						txt = s
					}
				}
			}
			if num != nil {
				txt = nil
			}
			keys = append(keys, num, txt)
		case k.field.name == "title":
			keys = append(keys, t.title)
		case k.field.name == "quality_score":
			keys = append(keys, any(nil))
			if t.quality != nil {
				keys[len(keys)-1] = *t.quality
			}
		case k.field.name == "created_at":
			keys = append(keys, float64(t.created.UnixMilli()))
		default:
			keys = append(keys, float64(t.updated.UnixMilli()))
		}
	}
	return keys
}

func (w *world) compare(s *Sort, x, y *thing) int {
	kx, ky := w.keys(s, x), w.keys(s, y)
	var desc []bool
	for _, k := range s.keys {
		desc = append(desc, k.desc)
		if k.field == nil && k.signal == nil {
			desc = append(desc, k.desc)
		}
	}
	for i := range kx {
		var c int
		switch {
		case kx[i] == ky[i]:
			continue
		case kx[i] == nil:
			return 1
		case ky[i] == nil:
			return -1
		}
		if n, ok := kx[i].(float64); ok {
			c = cmp.Compare(n, ky[i].(float64))
		} else {
			c = strings.Compare(kx[i].(string), ky[i].(string))
		}
		if desc[i] {
			c = -c
		}
		return c
	}
	return cmp.Or(strings.Compare(x.typ, y.typ), strings.Compare(x.id, y.id))
}

// Words that differ in ways in which stores might not tell them apart.
var words = []string{"", "a", "A", "ab", "a b", "b", "ä", "β", "Ω", "ￂ", "𝛽", "true", "null", "10", "9", "it's", `"`, `\`, "%", "_", "a%", "\x01", "z", "\u007f", "é", "e\u0301", strings.Repeat("x", 249), strings.Repeat("x", 251), strings.Repeat("ß", 300) + "a", strings.Repeat("ß", 300) + "b"}

var numbers = []float64{0, 1, -1, 0.1, 0.30000000000000004, 0.3, 1e21, 1e-7, 9007199254740991, -9007199254740991, 5e-324, 1.7976931348623157e308, 10, 9, 100}

// members are names in contents, and places that filters ask for.
var (
	members = []string{"a", "b", "list", "0", "ü", `q"`, "s/t", "x y"}
	places  = []string{"/a", "/b", "/list", "/0", "/ü", `/q"`, "/s~1t", "/x y", "/list/0", "/a/b", "/a/0", "/a/b/list", "/none"}
)

type maker struct{ *rand.Rand }

func pick[T any](m maker, of []T) T { return of[m.IntN(len(of))] }

func (m maker) scalar() any {
	switch m.IntN(6) {
	case 0, 1:
		return pick(m, words)
	case 2, 3:
		return pick(m, numbers)
	case 4:
		return m.IntN(2) == 0
	}
	return nil
}

func (m maker) value(depth int) any {
	switch n := m.IntN(8); {
	case n == 0 && depth > 0:
		return m.object(depth - 1)
	case n == 1 && depth > 0:
		list := make([]any, m.IntN(4))
		if m.IntN(8) == 0 {
			list = make([]any, 70)
		}
		for i := range list {
			list[i] = m.value(depth - 1)
			if len(list) == 70 {
				list[i] = i
			}
		}
		return list
	}
	return m.scalar()
}

func (m maker) object(depth int) map[string]any {
	o := map[string]any{}
	for range m.IntN(5) {
		o[pick(m, members)] = m.value(depth)
	}
	return o
}

func (m maker) world(size int) *world {
	w := &world{scopes: []string{"commons", "lab-a"}}
	base := time.UnixMilli(1_700_000_000_000).UTC()
	for i := range size {
		content, problems := artifact.Canonical([]byte(marshal(m.object(3))), "")
		if problems != nil {
			panic(fmt.Sprint(problems))
		}
		t := &thing{
			typ: pick(m, []string{"gene", "gene", "paper"}), id: fmt.Sprintf("%03d", i), scope: pick(m, []string{"commons", "commons", "lab-a", "lab-b"}),
			title: pick(m, words), state: pick(m, []string{"", "open", "shut"}), by: pick(m, []string{"ann", "bob"}),
			revision: 1 + m.IntN(3), content: content, signals: map[[2]string][3]float64{}, votes: map[[2]string][]vote{},
			created: base.Add(time.Duration(m.IntN(20)) * time.Millisecond), updated: base.Add(time.Duration(m.IntN(20)) * time.Second),
		}
		if m.IntN(2) == 0 {
			q := pick(m, numbers)
			t.quality = &q
		}
		for range m.IntN(3) {
			n := float64(1 + m.IntN(4))
			of := [2]string{pick(m, []string{"vote", "rank"}), pick(m, []string{"", "novelty"})}
			t.signals[of] = [3]float64{n, n, pick(m, []float64{0, 1, 0.1, -0.3, 1.7})}
			for range m.IntN(5) {
				t.votes[of] = append(t.votes[of], vote{pick(m, []string{"ann", "bob"}), pick(m, []float64{0, 1, 2, 0.1, -0.1})})
			}
		}
		w.things = append(w.things, t)
	}
	for range size * 2 {
		from, to := pick(m, w.things), pick(m, w.things)
		w.edges = append(w.edges, edge{from.ref(), pick(m, []string{"supports", "cites"}), to.ref(), pick(m, []string{"commons", "lab-a", "lab-b"})})
	}
	return w
}

func marshal(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// filter makes up a filter.
func (m maker) filter(w *world, depth int) map[string]any {
	switch n := m.IntN(10); {
	case n < 2 && depth > 0:
		parts := make([]any, 1+m.IntN(3))
		for i := range parts {
			parts[i] = m.filter(w, depth-1)
		}
		return map[string]any{pick(m, []string{"and", "or"}): parts}
	case n == 2 && depth > 0:
		return map[string]any{"not": m.filter(w, depth-1)}
	case n == 3:
		link := map[string]any{"direction": pick(m, []string{"in", "out"})}
		if m.IntN(2) == 0 {
			link["predicate"] = pick(m, []string{"supports", "cites"})
		}
		if m.IntN(2) == 0 {
			link["min"] = m.IntN(3)
		}
		if m.IntN(3) == 0 {
			link["max"] = 2 + m.IntN(2)
		}
		if m.IntN(4) == 0 {
			link["to"] = pick(m, w.things).ref()
		}
		if m.IntN(4) == 0 {
			link["types"] = []string{pick(m, []string{"gene", "paper"})}
		}
		return map[string]any{"link": link}
	case n == 4:
		agg := Aggregate{Agg: pick(m, Aggregates)}
		signal := map[string]any{"kind": pick(m, []string{"vote", "rank"}), "agg": agg.Agg}
		if m.IntN(2) == 0 {
			signal["dimension"] = "novelty"
		}
		if agg.optional() && m.IntN(4) == 0 {
			signal["op"], signal["value"] = "exists", m.IntN(2) == 0
		} else {
			m.compared(signal, []Op{Eq, Ne, In, Nin, Lt, Lte, Gt, Gte}, func() any { return pick(m, []float64{0, 1, 2, 0.1, -0.1, 0.85, 0.05}) })
		}
		return map[string]any{"signal": signal}
	case n == 5:
		f := pick(m, fields)
		c := map[string]any{"field": f.name}
		var known []Op
		for _, op := range ops {
			if f.kind.allows(Op(op)) || f.optional && Op(op) == Exists {
				known = append(known, Op(op))
			}
		}
		m.compared(c, known, func() any {
			t := pick(m, w.things)
			switch f.kind { //nolint:exhaustive // the others are told apart elsewhere
			case number:
				return pick(m, append([]float64{2, 3}, numbers...))
			case boolean:
				return m.IntN(2) == 0
			case moment:
				return pick(m, []time.Time{t.created, t.updated}).Format(time.RFC3339Nano)
			case ref:
				return t.ref()
			}
			return pick(m, append([]string{t.title, t.id, t.typ, t.state, "ann", "commons", "lab-b"}, words...))
		})
		return c
	}
	c := map[string]any{"field": "/content" + pick(m, places)}
	op := Op(pick(m, ops))
	m.compared(c, []Op{op}, func() any {
		switch op { //nolint:exhaustive // the others are told apart elsewhere
		case Contains, StartsWith:
			return pick(m, words)
		case Lt, Lte, Gt, Gte:
			if m.IntN(2) == 0 {
				return pick(m, words)
			}
			return pick(m, numbers)
		}
		return m.scalar()
	})
	return c
}

func (m maker) compared(c map[string]any, known []Op, value func() any) {
	op := pick(m, known)
	c["op"] = op
	switch {
	case op == Exists:
		c["value"] = m.IntN(2) == 0
	case op.many():
		list := make([]any, m.IntN(4))
		for i := range list {
			list[i] = value()
		}
		c["value"] = list
	default:
		c["value"] = value()
	}
}

func (m maker) sort() []any {
	keys := make([]any, 1+m.IntN(2))
	for i := range keys {
		k := map[string]any{"order": pick(m, []string{"asc", "desc"})}
		switch m.IntN(3) {
		case 0:
			k["by"] = pick(m, sortable)
		case 1:
			k["by"] = "/content" + pick(m, places)
		case 2:
			k["signal"] = map[string]any{"kind": pick(m, []string{"vote", "rank"}), "agg": pick(m, Aggregates)}
		}
		keys[i] = k
	}
	return keys
}
