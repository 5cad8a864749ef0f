package replicate

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// A Digest sums up a state at a seq: two stores with equal digests hold the same
// rows. It proves integrity against faults, not against an adversary.
type Digest struct {
	Seq     artifact.Seq `json:"seq"`
	Entries []DigestSum  `json:"entries"` // by key, in order

	// Scopes are those that it covers, if it tells.
	Scopes []string `json:"scopes,omitempty"`

	// Unsettled are keys under which a follower at Seq may rightly hold other rows:
	// what the log said of some was withheld, and a row after Seq says how they are.
	Unsettled []DigestKey `json:"unsettled,omitempty"`
}

// A DigestKey is what rows are summed by. Type is the artifact's type for heads
// and revisions, "kg_edge" for links, "signal" for signals and the event's type
// for events.
type DigestKey struct {
	Scope string `json:"scope"`
	Kind  string `json:"kind"`
	Type  string `json:"type"`
}

// A DigestSum is the number of rows under a key and the XOR of their hashes.
type DigestSum struct {
	DigestKey
	Count int64         `json:"count"`
	XOR   artifact.Hash `json:"xor"`
}

// Add puts a row's hash into s; Remove takes it out.
func (s *DigestSum) Add(h artifact.Hash) {
	s.Count++
	subtle.XORBytes(s.XOR[:], s.XOR[:], h[:])
}

// Remove takes a row's hash out of s.
func (s *DigestSum) Remove(h artifact.Hash) {
	s.Count--
	subtle.XORBytes(s.XOR[:], s.XOR[:], h[:])
}

// Compare orders keys by scope, kind and type.
func (k DigestKey) Compare(l DigestKey) int {
	return cmp.Or(cmp.Compare(k.Scope, l.Scope), cmp.Compare(k.Kind, l.Kind), cmp.Compare(k.Type, l.Type))
}

// Sums is a digest under construction.
type Sums map[DigestKey]*DigestSum

// Apply counts what a row changes: its thing, if the digest covers such, its event,
// and the events that it says are no longer kept. With undo it takes the row's effect back.
func (s Sums) Apply(r *Row, undo bool) {
	add, remove := (*DigestSum).Add, (*DigestSum).Remove
	if undo {
		add, remove = remove, add
	}
	if k, ok := r.DigestKey(); ok {
		sum := s.at(k)
		if !r.PrevHash.IsZero() {
			remove(sum, r.PrevHash)
		}
		if r.Op == Put {
			add(sum, r.Hash)
		}
	}
	if r.Event != nil {
		add(s.at(DigestKey{r.Scope, KindEvent, r.Event.Type}), r.EventHash())
	}
	if f, err := r.EventFloor(); f != nil && err == nil { // who stores the row refuses it otherwise
		s.Forget(f, undo)
	}
}

func (s Sums) at(k DigestKey) *DigestSum {
	sum, ok := s[k]
	if !ok {
		sum = &DigestSum{DigestKey: k}
		s[k] = sum
	}
	return sum
}

// DigestKey returns the key under which a row's thing is summed, if the digest
// covers such.
func (r *Row) DigestKey() (k DigestKey, ok bool) {
	k = DigestKey{Scope: r.Scope, Kind: r.Kind}
	switch r.Kind {
	case KindArtifact, KindRevision:
		k.Type, _, ok = strings.Cut(r.Ref, ":")
	case KindLink:
		k.Type, ok = LinkType, true
	case KindSignal:
		k.Type, ok = SignalType, true
	}
	return k, ok
}

// Clone returns a copy that s's changes leave as it is.
func (s Sums) Clone() Sums {
	out := make(Sums, len(s))
	for k, sum := range s {
		own := *sum
		out[k] = &own
	}
	return out
}

// Digest returns s in order, without empty sums.
func (s Sums) Digest(at artifact.Seq) Digest {
	d := Digest{Seq: at, Entries: []DigestSum{}}
	for _, sum := range s {
		if sum.Count != 0 || !sum.XOR.IsZero() {
			d.Entries = append(d.Entries, *sum)
		}
	}
	slices.SortFunc(d.Entries, func(a, b DigestSum) int { return a.Compare(b.DigestKey) })
	return d
}

// Of returns the sum under a key, which is empty when d has none.
func (d Digest) Of(k DigestKey) DigestSum {
	i, found := slices.BinarySearchFunc(d.Entries, k, func(s DigestSum, k DigestKey) int { return s.Compare(k) })
	if !found {
		return DigestSum{DigestKey: k}
	}
	return d.Entries[i]
}

// In returns the part of d that is of these scopes.
func (d Digest) In(scopes []string) Digest {
	out := d
	out.Entries = []DigestSum{}
	for _, e := range d.Entries {
		if slices.Contains(scopes, e.Scope) {
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// Differing returns the keys under which two digests differ, in order.
func (d Digest) Differing(other Digest) (keys []DigestKey) {
	for _, o := range other.Entries {
		if d.Of(o.DigestKey) != o {
			keys = append(keys, o.DigestKey)
		}
	}
	for _, mine := range d.Entries {
		if other.Of(mine.DigestKey).Count == 0 && other.Of(mine.DigestKey).XOR.IsZero() {
			keys = append(keys, mine.DigestKey)
		}
	}
	slices.SortFunc(keys, DigestKey.Compare)
	return keys
}

// Diff names the keys under which two digests differ, with both counts.
func (d Digest) Diff(other Digest) (out []string) {
	for _, k := range d.Differing(other) {
		out = append(out, difference(d.Of(k), other.Of(k)))
	}
	return out
}

func difference(a, b DigestSum) string {
	s := fmt.Sprintf("%s %s %s: %d against %d rows", a.Scope, a.Kind, a.Type, a.Count, b.Count)
	if a.Count == b.Count {
		s += " of other content"
	}
	return s
}
