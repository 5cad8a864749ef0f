package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
)

// Limits of a rule.
const (
	MaxRuleBytes = 4 << 10
	MaxRuleDepth = 16
	// maxSteps bounds what one evaluation may do: operators run, elements visited
	// and bytes made. The arrays of a payload are not the rule's own.
	maxSteps = 20_000
)

// A Rule is a JSONLogic expression, compiled. It is safe for concurrent use.
type Rule struct {
	text string // canonical, by which equal rules are one
	run  expr
}

// An expr evaluates part of a rule.
type expr func(*scope) any

// A scope is what a part of a rule sees as its data, and what it may still spend.
type scope struct {
	data  any
	steps *int
}

// errSteps ends an evaluation that costs too much. It travels as a panic.
var errSteps = errors.New("the rule does too much on this event")

func (s *scope) spend(n int) {
	if *s.steps -= n; *s.steps < 0 {
		panic(errSteps)
	}
}

// CompileRule reads a JSONLogic rule. Its problems have paths below at.
func CompileRule(raw []byte, at string) (*Rule, []artifact.Problem) {
	if len(raw) > MaxRuleBytes {
		return nil, []artifact.Problem{{Path: at, Constraint: "max_bytes", Message: fmt.Sprintf("a rule is at most %d bytes", MaxRuleBytes)}}
	}
	if problems := artifact.CheckJSON(raw, at, MaxRuleDepth); problems != nil {
		return nil, problems
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, []artifact.Problem{{Path: at, Constraint: "json", Message: err.Error()}}
	}
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return nil, []artifact.Problem{{Path: at, Constraint: "json", Message: err.Error()}}
	}
	c := compiler{}
	run := c.expr(tree, at)
	if c.problems != nil {
		return nil, c.problems
	}
	return &Rule{text: text.String(), run: run}, nil
}

// Match reports whether the rule holds for an event as [Tree] returns it. A rule
// that costs too much on it does not.
func (r *Rule) Match(data any) (holds bool) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, errSteps) {
				panic(p)
			}
			holds = false
		}
	}()
	steps := maxSteps
	return truthy(r.run(&scope{data, &steps}))
}

type compiler struct{ problems []artifact.Problem }

func (c *compiler) expr(v any, at string) expr {
	switch v := v.(type) {
	case map[string]any:
		if len(v) != 1 {
			c.problems = append(c.problems, artifact.Problem{
				Path: at, Constraint: "one_operator", Message: fmt.Sprintf(`an operation is an object with one member, {"<operator>": arguments}; this has %d`, len(v)),
			})
			return nil
		}
		for name, args := range v {
			return c.operation(name, args, at)
		}
	case []any:
		parts := make([]expr, len(v))
		for i := range v {
			parts[i] = c.expr(v[i], at+"/"+strconv.Itoa(i))
		}
		return func(s *scope) any {
			s.spend(len(parts))
			out := make([]any, len(parts))
			for i, part := range parts {
				out[i] = part(s)
			}
			return out
		}
	}
	return func(*scope) any { return v }
}

func (c *compiler) operation(name string, given any, at string) expr {
	at += "/" + artifact.EscapePointer(name)
	op, known := operators[name]
	if !known {
		p := artifact.Problem{Path: at, Constraint: "operator", Message: "JSONLogic has no such operator here", Value: artifact.Received(name)}
		if near := artifact.Nearest(name, slices.Sorted(maps.Keys(operators))); near != "" {
			p.Suggestion = artifact.Received(near)
		}
		c.problems = append(c.problems, p)
		return nil
	}
	list, several := given.([]any)
	if !several {
		list = []any{given}
	}
	if len(list) < op.least || len(list) > op.most {
		c.problems = append(c.problems, artifact.Problem{Path: at, Constraint: "arguments", Message: op.arity(name)})
		return nil
	}
	args := make([]expr, len(list))
	for i := range list {
		path := at
		if several {
			path += "/" + strconv.Itoa(i)
		}
		args[i] = c.expr(list[i], path)
	}
	if c.problems != nil {
		return nil
	}
	return func(s *scope) any {
		s.spend(1)
		return op.run(s, args)
	}
}

// An operator is one of JSONLogic.
type operator struct {
	least, most int // arguments
	run         func(s *scope, args []expr) any
}

func (o operator) arity(name string) string {
	if o.least == o.most {
		return fmt.Sprintf("%s takes %d arguments", name, o.least)
	}
	return fmt.Sprintf("%s takes %d to %d arguments", name, o.least, o.most)
}

// many is more arguments than a rule has room for.
const many = MaxRuleBytes

// operators are those of jsonlogic.com but log, which would write what others send
// to the server's log.
var operators map[string]operator

func init() { // they refer to each other
	operators = map[string]operator{
		"var": {0, 2, opVar}, "missing": {0, many, opMissing}, "missing_some": {2, 2, opMissingSome},
		"if": {0, many, opIf}, "?:": {0, many, opIf},
		"==": {2, 2, binary(looseEqual)}, "!=": {2, 2, binary(func(a, b any) bool { return !looseEqual(a, b) })},
		"===": {2, 2, binary(strictEqual)}, "!==": {2, 2, binary(func(a, b any) bool { return !strictEqual(a, b) })},
		"!":  {0, 1, func(s *scope, args []expr) any { return !truthy(arg(s, args, 0)) }},
		"!!": {0, 1, func(s *scope, args []expr) any { return truthy(arg(s, args, 0)) }},
		"or": {1, many, opOr}, "and": {1, many, opAnd},
		"<": {2, 3, ordered(less)}, "<=": {2, 3, ordered(lessOrEqual)},
		">": {2, 2, ordered(func(a, b any) bool { return less(b, a) })}, ">=": {2, 2, ordered(func(a, b any) bool { return lessOrEqual(b, a) })},
		"max": {0, many, opMax}, "min": {0, many, opMin},
		"+": {0, many, opAdd}, "*": {1, many, opMultiply}, "-": {1, 2, opSubtract}, "/": {2, 2, opDivide}, "%": {2, 2, opModulo},
		"map": {2, 2, opMap}, "filter": {2, 2, opFilter}, "reduce": {3, 3, opReduce},
		"all": {2, 2, opAll}, "none": {2, 2, opNone}, "some": {2, 2, opSome},
		"merge": {0, many, opMerge}, "in": {2, 2, opIn}, "cat": {0, many, opCat}, "substr": {2, 3, opSubstr},
	}
}
