package query

import (
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Bounds of a filter.
const (
	MaxDepth   = 32        // and, or and not around a condition, itself being one
	MaxNodes   = 256       // conditions with all that is around them
	MaxValues  = 1000      // of one in or nin
	MaxBytes   = 256 << 10 // of its JSON
	maxPointer = 1024      // bytes of a JSON pointer
	maxText    = 4096      // bytes of a text that is compared
	maxIndices = 2         // tokens of a pointer that may be a place in an array
)

// A Filter is a condition on artifacts. A condition on what an artifact lacks is
// not met, and ne and nin, which are eq and in denied, are.
//
// Of a content, a pointer that leads to an array stands for each text, number,
// truth value and null in it; what leads to an object or an array within an array
// is there and equals nothing. Texts compare bytewise, numbers as doubles, and
// values of different types are neither equal nor in order.
type Filter struct {
	root      node
	canonical []byte
}

// A node is exactly one of a junction, a denial and a condition.
type node struct {
	and, or []node
	not     *node
	field   *fieldCondition
	link    *linkCondition
	signal  *signalCondition
}

// A fieldCondition compares a field of an artifact, or, where field is nil, what
// its content holds at a pointer.
type fieldCondition struct {
	field   *field
	pointer pointer
	op      Op
	values  []value // one, but for in and nin
	exists  bool    // of the op exists
	at      string  // where it stands in the request
}

// A linkCondition counts links of an artifact.
type linkCondition struct {
	predicate string // "" for any
	in        bool   // links that lead to the artifact, not from it
	least     int
	most      int // -1 for any
	to        *artifact.Ref
	types     []string // of the other ends; none for any
}

// A signalCondition compares what the signals on an artifact add up to.
type signalCondition struct {
	Aggregate
	op     Op
	values []value
	exists bool
}

// An Aggregate is one of the numbers that an artifact's signals come to. Of no
// signals count, voters and sum are 0 and there is no mean, min or max.
type Aggregate struct {
	Kind      string
	Dimension string
	Agg       string // one of Aggregates

	at string // where it stands in the request
}

// Aggregates are the names of the numbers that signals come to: sums, which are
// kept, and extremes, which are looked for.
var Aggregates = []string{"count", "voters", "sum", "mean", "min", "max"}

// optional reports whether of no signals there is none.
func (g *Aggregate) optional() bool { return g.Agg == "mean" || g.extreme() }

func (g *Aggregate) extreme() bool { return g.Agg == "min" || g.Agg == "max" }

// An Op is how a condition compares.
type Op string

// The ops.
const (
	Eq         Op = "eq"
	Ne         Op = "ne"
	In         Op = "in"
	Nin        Op = "nin"
	Lt         Op = "lt"
	Lte        Op = "lte"
	Gt         Op = "gt"
	Gte        Op = "gte"
	Contains   Op = "contains"
	StartsWith Op = "starts_with"
	Exists     Op = "exists"
)

var ops = []string{
	string(Eq), string(Ne), string(In), string(Nin), string(Lt), string(Lte), string(Gt), string(Gte), string(Contains), string(StartsWith), string(Exists),
}

// denied returns the op of which op is the denial, and whether it is one.
func (o Op) denied() (Op, bool) {
	switch o { //nolint:exhaustive // the others are none
	case Ne:
		return Eq, true
	case Nin:
		return In, true
	}
	return o, false
}

func (o Op) many() bool { return o == In || o == Nin }

// A kind is the type of a value.
type kind byte

const (
	text    kind = 's'
	number  kind = 'n'
	boolean kind = 'b'
	null    kind = 'z'
	moment  kind = 't'
	ref     kind = 'r'
)

// A value is what a field is compared with.
type value struct {
	kind kind
	text string // of a text; "true" or "false"
	num  float64
	at   time.Time // whole milliseconds
	ref  artifact.Ref
}

// Canonical returns the filter's canonical JSON, nil for no filter.
func (f *Filter) Canonical() []byte {
	if f == nil {
		return nil
	}
	return f.canonical
}

// Type returns the type that all artifacts have which the filter lets pass, ""
// when it does not say.
func (f *Filter) Type() string {
	if f == nil {
		return ""
	}
	return f.root.typ()
}

func (n *node) typ() string {
	for i := range n.and {
		if t := n.and[i].typ(); t != "" {
			return t
		}
	}
	c := n.field
	switch {
	case c == nil || c.field == nil || c.op != Eq && c.op != In || len(c.values) != 1:
	case c.field.name == "type":
		return c.values[0].text
	case c.field.name == "ref":
		return c.values[0].ref.Type
	}
	return ""
}

// Paths returns the JSON pointers into the content that the filter names, each
// once, in the order in which they stand.
func (f *Filter) Paths() (paths []string) {
	seen := make(map[string]bool)
	if f != nil {
		f.root.each(func(n *node) {
			if c := n.field; c != nil && c.field == nil && !seen[c.pointer.text] {
				seen[c.pointer.text] = true
				paths = append(paths, c.pointer.text)
			}
		})
	}
	return paths
}

// Check returns what is wrong with the filter for artifacts of one type: signals
// that they do not have.
func (f *Filter) Check(schema *artifact.Schema) (problems []artifact.Problem) {
	if f != nil {
		f.root.each(func(n *node) {
			if n.signal != nil {
				problems = append(problems, n.signal.check(schema)...)
			}
		})
	}
	return problems
}

// CheckEdge returns what is wrong with the filter for links or signals.
func (f *Filter) CheckEdge(typ string) (problems []artifact.Problem) {
	e := edgeOf(typ)
	if f != nil && e != nil {
		f.root.each(func(n *node) {
			switch {
			case n.signal != nil:
				problems = append(problems, e.checkSignal(n.signal.at)...)
			case n.field != nil:
				problems = append(problems, e.check(n.field.field, n.field.pointer, n.field.at)...)
			}
		})
	}
	return problems
}

// check returns what is wrong with an aggregate for artifacts of one type.
func (g *Aggregate) check(schema *artifact.Schema) []artifact.Problem {
	problems := schema.CheckSignal(g.Kind, g.Dimension, artifact.Decimal{}, g.at)
	return slices.DeleteFunc(problems, func(p artifact.Problem) bool { return p.Path == g.at+"/value" })
}

func (n *node) each(f func(*node)) {
	f(n)
	for i := range n.and {
		n.and[i].each(f)
	}
	for i := range n.or {
		n.or[i].each(f)
	}
	if n.not != nil {
		n.not.each(f)
	}
}
