package query

import "slices"

// A field is a member of an artifact beside its content.
type field struct {
	name     string
	kind     kind
	optional bool // "" or null stands for what is not there
}

var fields = []field{
	{name: "type", kind: text},
	{name: "id", kind: text},
	{name: "ref", kind: ref},
	{name: "scope", kind: text},
	{name: "title", kind: text},
	{name: "state", kind: text, optional: true},
	{name: "revision", kind: number},
	{name: "schema_version", kind: number},
	{name: "created_at", kind: moment},
	{name: "created_by", kind: text},
	{name: "updated_at", kind: moment},
	{name: "updated_by", kind: text},
	{name: "quality_score", kind: number, optional: true},
	{name: "is_latest", kind: boolean},
	{name: "superseded_by", kind: text, optional: true},
}

func fieldNamed(name string) *field {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); i >= 0 {
		return &fields[i]
	}
	return nil
}

func fieldNames() []string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return names
}

// allows reports whether values of a kind are compared by an op.
func (k kind) allows(o Op) bool {
	switch o {
	case Eq, Ne, In, Nin:
		return true
	case Lt, Lte, Gt, Gte:
		return k == text || k == number || k == moment
	case Contains, StartsWith:
		return k == text
	case Exists:
		return false // a field says whether it may be absent
	}
	return false
}

func (k kind) String() string {
	switch k {
	case text:
		return "a text"
	case number:
		return "a number"
	case boolean:
		return "true or false"
	case null:
		return "null"
	case moment:
		return "a time, such as 2026-01-31T00:00:00Z"
	case ref:
		return "a ref, type:id"
	}
	return "a value"
}
