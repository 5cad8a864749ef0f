package hub

import "github.com/scidex-ai/substrate/artifact"

// pinOf returns the hash of the version that a ref names, zero for none and for an
// alias, which means whatever the batch made of an artifact so far.
func pinOf(text string) artifact.Hash {
	ref, err := artifact.ParseRef(text)
	if err != nil {
		return artifact.Hash{}
	}
	return ref.Hash
}

// checkPin refuses a write to an artifact by the ref of a version that is not
// current: who names a version has that in mind.
func checkPin(text string, current *head) error {
	pin := pinOf(text)
	if pin.IsZero() || pin == current.ContentHash {
		return nil
	}
	return conflict(current, artifact.ReasonStaleBase, "the ref names a version that is not current: read the current one, and name that or leave the hash out", pin)
}

// pinnedBase returns the version that a write is based on: the one that it says, or
// else the one that its ref names. Where it says both they are one.
func pinnedBase(text string, base artifact.Hash) (artifact.Hash, *artifact.Problem) {
	pin := pinOf(text)
	if !pin.IsZero() && !base.IsZero() && pin != base {
		return base, &artifact.Problem{
			Path: "/ref", Constraint: "base_content_hash", Value: artifact.Received(text),
			Message: "the ref names another version than base_content_hash: leave its hash out, or let both be the version that you read",
		}
	}
	if base.IsZero() {
		return pin, nil
	}
	return base, nil
}
