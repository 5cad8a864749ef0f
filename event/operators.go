package event

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
)

// The operators of JSONLogic, which are JavaScript's where they compare and
// convert: https://jsonlogic.com/operations.html.

// arg returns an argument's value, nil for one that is not there.
func arg(s *scope, args []expr, i int) any {
	if i >= len(args) {
		return nil
	}
	return args[i](s)
}

// simple returns an argument's value, paid for as what it takes to make it a text or a
// number: an array that holds an array twice, and so on, is a small thing that a text
// of would fill the memory.
func simple(s *scope, args []expr, i int) any {
	v := arg(s, args, i)
	s.pay(v)
	return v
}

func (s *scope) pay(v any) {
	switch v := v.(type) {
	case string:
		s.spend(len(v) / 64)
	case []any:
		s.spend(1 + len(v))
		for _, element := range v {
			s.pay(element)
		}
	}
}

// values returns those of all arguments.
func values(s *scope, args []expr) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a(s)
	}
	return out
}

func opVar(s *scope, args []expr) any {
	found, ok := lookUp(s.data, simple(s, args, 0))
	if !ok {
		return arg(s, args, 1)
	}
	return found
}

// lookUp returns what a dotted path leads to, which may be null, and whether it leads
// to anything. No path leads to the data itself.
func lookUp(data, path any) (any, bool) {
	name := text(path)
	if path == nil || name == "" {
		return data, true
	}
	for part := range strings.SplitSeq(name, ".") {
		switch in := data.(type) {
		case map[string]any:
			found, ok := in[part]
			if !ok {
				return nil, false
			}
			data = found
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			data = in[i]
		default:
			return nil, false
		}
	}
	return data, true
}

// missing returns those of some paths that lead to nothing, or to an empty text.
func missing(s *scope, paths []any) []any {
	s.spend(len(paths))
	out := []any{}
	for _, p := range paths {
		s.pay(p)
		if found, _ := lookUp(s.data, p); found == nil || found == "" {
			out = append(out, p)
		}
	}
	return out
}

func opMissing(s *scope, args []expr) any {
	paths := values(s, args)
	if len(paths) > 0 {
		if list, ok := paths[0].([]any); ok {
			paths = list
		}
	}
	return missing(s, paths)
}

func opMissingSome(s *scope, args []expr) any {
	paths, _ := arg(s, args, 1).([]any)
	out := missing(s, paths)
	if float64(len(paths)-len(out)) >= number(simple(s, args, 0)) {
		return []any{}
	}
	return out
}

func opIf(s *scope, args []expr) any {
	i := 0
	for ; i+1 < len(args); i += 2 {
		if truthy(args[i](s)) {
			return args[i+1](s)
		}
	}
	return arg(s, args, i)
}

func opOr(s *scope, args []expr) any {
	var last any
	for _, a := range args {
		if last = a(s); truthy(last) {
			break
		}
	}
	return last
}

func opAnd(s *scope, args []expr) any {
	var last any
	for _, a := range args {
		if last = a(s); !truthy(last) {
			break
		}
	}
	return last
}

func binary(f func(a, b any) bool) func(*scope, []expr) any {
	return func(s *scope, args []expr) any { return f(simple(s, args, 0), simple(s, args, 1)) }
}

// ordered compares two values, or tells whether the second is between the others.
func ordered(f func(a, b any) bool) func(*scope, []expr) any {
	return func(s *scope, args []expr) any {
		a, b := simple(s, args, 0), simple(s, args, 1)
		return f(a, b) && (len(args) < 3 || f(b, simple(s, args, 2)))
	}
}

func opMax(s *scope, args []expr) any { return extreme(s, args, math.Inf(-1), math.Max) }
func opMin(s *scope, args []expr) any { return extreme(s, args, math.Inf(1), math.Min) }

func extreme(s *scope, args []expr, start float64, pick func(a, b float64) float64) any {
	for i := range args {
		start = pick(start, number(simple(s, args, i)))
	}
	return start
}

func opAdd(s *scope, args []expr) any {
	sum := 0.0
	for i := range args {
		sum += leadingNumber(simple(s, args, i))
	}
	return sum
}

func opMultiply(s *scope, args []expr) any {
	product := 1.0
	for i := range args {
		product *= leadingNumber(simple(s, args, i))
	}
	return product
}

func opSubtract(s *scope, args []expr) any {
	if len(args) == 1 {
		return -number(simple(s, args, 0))
	}
	return number(simple(s, args, 0)) - number(simple(s, args, 1))
}

func opDivide(s *scope, args []expr) any {
	return number(simple(s, args, 0)) / number(simple(s, args, 1))
}

func opModulo(s *scope, args []expr) any {
	return math.Mod(number(simple(s, args, 0)), number(simple(s, args, 1)))
}

// elements evaluates an operator's first argument, which is an array, and passes
// the second one's value for each element on.
func elements(s *scope, args []expr, each func(element, value any) bool) {
	list, _ := args[0](s).([]any)
	for _, element := range list {
		s.spend(1)
		if !each(element, args[1](&scope{element, s.steps})) {
			return
		}
	}
}

func opMap(s *scope, args []expr) any {
	out := []any{}
	elements(s, args, func(_, value any) bool { out = append(out, value); return true })
	return out
}

func opFilter(s *scope, args []expr) any {
	out := []any{}
	elements(s, args, func(element, value any) bool {
		if truthy(value) {
			out = append(out, element)
		}
		return true
	})
	return out
}

func opReduce(s *scope, args []expr) any {
	list, _ := args[0](s).([]any)
	accumulator := args[2](s)
	for _, element := range list {
		s.spend(1)
		accumulator = args[1](&scope{map[string]any{"current": element, "accumulator": accumulator}, s.steps})
	}
	return accumulator
}

// opAll holds for no array that is empty.
func opAll(s *scope, args []expr) any {
	all := false
	elements(s, args, func(_, value any) bool { all = truthy(value); return all })
	return all
}

func opSome(s *scope, args []expr) any {
	some := false
	elements(s, args, func(_, value any) bool { some = truthy(value); return !some })
	return some
}

func opNone(s *scope, args []expr) any { return opSome(s, args) == false }

func opMerge(s *scope, args []expr) any {
	out := []any{}
	for _, v := range values(s, args) {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		s.spend(len(list))
		out = append(out, list...)
	}
	return out
}

func opIn(s *scope, args []expr) any {
	needle := simple(s, args, 0)
	switch in := args[1](s).(type) {
	case string:
		s.spend(len(in) / 64)
		return strings.Contains(in, text(needle))
	case []any:
		s.spend(len(in) / 8)
		for _, v := range in {
			if strictEqual(needle, v) {
				return true
			}
		}
	}
	return false
}

func opCat(s *scope, args []expr) any {
	var b strings.Builder
	for i := range args {
		part := text(simple(s, args, i))
		s.spend(len(part) / 8)
		b.WriteString(part)
	}
	return b.String()
}

// opSubstr counts as JavaScript does, in UTF-16 units.
func opSubstr(s *scope, args []expr) any {
	all := text(simple(s, args, 0))
	s.spend(len(all) / 8)
	units := utf16.Encode([]rune(all))
	start := int(clamp(number(simple(s, args, 1)), float64(len(units))))
	if start < 0 {
		start += len(units)
	}
	units = units[max(start, 0):]
	if len(args) > 2 {
		n := int(clamp(number(simple(s, args, 2)), float64(len(units))))
		if n < 0 {
			n = max(n+len(units), 0)
		}
		units = units[:n]
	}
	return string(utf16.Decode(units))
}

// clamp returns f within -most and most, 0 for what is no number.
func clamp(f, most float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return math.Trunc(min(max(f, -most), most))
}

// truthy is JSONLogic's: an empty array is false, unlike in JavaScript.
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0 && !math.IsNaN(v)
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	}
	return true
}

func strictEqual(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case bool, float64, string:
		return a == b
	}
	return false // arrays and objects are each their own
}

func looseEqual(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if _, ok := a.(bool); ok {
		a = number(a)
	}
	if _, ok := b.(bool); ok {
		b = number(b)
	}
	if isObject(a) && isObject(b) {
		return false
	}
	a, b = primitive(a), primitive(b)
	_, aText := a.(string)
	_, bText := b.(string)
	if aText != bText {
		return number(a) == number(b)
	}
	return strictEqual(a, b)
}

func isObject(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// primitive returns what an array or an object is compared as: a text.
func primitive(v any) any {
	if isObject(v) {
		return text(v)
	}
	return v
}

func less(a, b any) bool {
	a, b = primitive(a), primitive(b)
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return x < y
		}
	}
	return number(a) < number(b)
}

func lessOrEqual(a, b any) bool {
	a, b = primitive(a), primitive(b)
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return x <= y
		}
	}
	return number(a) <= number(b)
}

// number converts as JavaScript's Number does.
func number(v any) float64 {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 1
		}
		return 0
	case float64:
		return v
	case string:
		t := strings.TrimSpace(v)
		if t == "" {
			return 0
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil && !strings.ContainsAny(t, "_xXpPnN") {
			return f
		}
	case []any:
		return number(text(v))
	}
	return math.NaN()
}

// leadingNumber converts as JavaScript's parseFloat does.
func leadingNumber(v any) float64 {
	switch v.(type) {
	case float64:
		return number(v)
	case nil, bool:
		return math.NaN()
	}
	t := text(v)
	t = strings.TrimLeft(t, " \t\r\n")
	end, digits, dot, exponent := 0, false, false, false
scan:
	for end < len(t) {
		switch c := t[end]; {
		case c >= '0' && c <= '9':
			digits = true
		case (c == '+' || c == '-') && (end == 0 || exponent && (t[end-1] == 'e' || t[end-1] == 'E')):
		case c == '.' && !dot && !exponent:
			dot = true
		case (c == 'e' || c == 'E') && digits && !exponent:
			exponent = true
		default:
			break scan
		}
		end++
	}
	for ; end > 0; end-- { // 1e, 1e+ and 1. begin with a number
		if f, err := strconv.ParseFloat(t[:end], 64); err == nil {
			return f
		}
	}
	return math.NaN()
}

// text converts as JavaScript's String does.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case float64:
		if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
			// Go writes two digits of exponent, JavaScript as many as it takes.
			return strings.NewReplacer("e-0", "e-", "e+0", "e+").Replace(strconv.FormatFloat(v, 'e', -1, 64))
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		return v
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = text(v[i])
		}
		return strings.Join(parts, ",")
	}
	return "[object Object]"
}
