package query

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A Place is where a row stands in an order: its values there, each a float64, a
// string or nil, and its ref. Times are milliseconds since 1970.
type Place struct {
	Values []any
	Type   string
	ID     string
}

// Segment returns in which part of a list of several a place is.
func (p Place) Segment(of int) int {
	for i, v := range p.Values {
		if v != nil {
			return i
		}
	}
	return of - 1
}

// After returns the condition that a row comes after a place.
func (o *Order) After(p Place) string {
	var ways, same []string
	bound := ""
	for i, c := range o.columns {
		v := p.Values[i]
		if v == nil {
			same = append(same, c.sql+" IS NULL")
			continue
		}
		arg := o.s.Arg(c.argument(o.s.dialect, v))
		than := " > "
		if c.desc {
			than = " < "
		}
		later := c.sql + than + arg
		if c.nullable {
			later = "(" + later + " OR " + c.sql + " IS NULL)"
		} else if ways == nil {
			bound = c.sql + strings.TrimRight(than, " ") + "= " + arg + " AND " // for an index to begin there
		}
		ways = append(ways, strings.Join(append(slices.Clone(same), later), " AND "))
		same = append(same, c.sql+" = "+arg)
	}
	var later string
	if o.s.Type == "" {
		later = "(a.type, a.id) > (" + o.s.Arg(p.Type) + ", " + o.s.Arg(p.ID) + ")"
	} else {
		later = "a.id > " + o.s.Arg(p.ID)
	}
	ways = append(ways, strings.Join(append(same, later), " AND "))
	return bound + "(" + strings.Join(ways, " OR ") + ")"
}

func (c *orderColumn) argument(d Dialect, v any) any {
	n, isNumber := v.(float64)
	switch {
	case !isNumber || c.kind == number:
		return v
	case d == SQLite:
		return int64(n)
	}
	return time.UnixMilli(int64(n)).UTC()
}

// Fits reports whether a place is one in the order: a cursor is the caller's.
func (o *Order) Fits(p Place) bool {
	if len(p.Values) != len(o.columns) || !artifact.ValidType(p.Type) || !artifact.ValidID(p.ID) {
		return false
	}
	for i, c := range o.columns {
		switch v := p.Values[i].(type) {
		case nil:
			if !c.nullable {
				return false
			}
		case float64:
			if c.kind == text || c.kind == moment && (math.Abs(v) > 1e15 || v != math.Trunc(v)) {
				return false
			}
		case string:
			if c.kind != text || strings.ContainsRune(v, 0) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// Scans returns what the order's columns of a row are read into, and a function
// that returns what was read.
func (o *Order) Scans() (into []any, values func() []any) {
	into = make([]any, len(o.columns))
	for i, c := range o.columns {
		switch {
		case c.kind == text:
			into[i] = new(*string)
		case c.kind == moment && o.s.dialect == Postgres:
			into[i] = new(time.Time)
		default:
			into[i] = new(*float64)
		}
	}
	return into, func() []any {
		out := make([]any, len(into))
		for i, v := range into {
			switch v := v.(type) {
			case **string:
				if *v != nil {
					out[i] = **v
				}
			case *time.Time:
				out[i] = float64(v.UnixMilli())
			case **float64:
				if *v != nil {
					out[i] = **v
				}
			}
		}
		return out
	}
}
