package artifact

import "slices"

// reservedTypes begin the refs and events of what is no artifact.
var reservedTypes = []string{"agent", "kg_edge", "scope", "signal"}

// reserved returns what is wrong with the name of a type that refs give to what is
// no artifact, or nil.
func reserved(typ, at string) *Problem {
	if !slices.Contains(reservedTypes, typ) {
		return nil
	}
	return &Problem{Path: at + "/type", Constraint: "reserved", Message: "the name is not for a type of artifacts", Value: Received(typ)}
}
