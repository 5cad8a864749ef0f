package replicate

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
)

// A Digest sums up a state at a seq: two stores with equal digests hold the same
// rows. It proves integrity against faults, not against an adversary.
type Digest struct {
	Seq     artifact.Seq `json:"seq"`
	Entries []DigestSum  `json:"entries"` // by key, in order
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

// Apply counts what a row changes: its thing, if the digest covers such, and its
// event. With undo it takes the row's effect back.
func (s Sums) Apply(r *Row, undo bool) {
	add, remove := (*DigestSum).Add, (*DigestSum).Remove
	if undo {
		add, remove = remove, add
	}
	if typ := digestType(r); typ != "" {
		sum := s.at(DigestKey{r.Scope, r.Kind, typ})
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
}

func (s Sums) at(k DigestKey) *DigestSum {
	sum, ok := s[k]
	if !ok {
		sum = &DigestSum{DigestKey: k}
		s[k] = sum
	}
	return sum
}

// digestType returns the type under which a row's thing is summed, or "".
func digestType(r *Row) string {
	switch r.Kind {
	case KindArtifact, KindRevision:
		for i := range len(r.Ref) {
			if r.Ref[i] == ':' {
				return r.Ref[:i]
			}
		}
	case KindLink:
		return LinkType
	case KindSignal:
		return SignalType
	}
	return ""
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

// Diff names the keys under which two digests differ, with both counts.
func (d Digest) Diff(other Digest) []string {
	all := make(Sums)
	for i := range d.Entries {
		all[d.Entries[i].DigestKey] = &d.Entries[i]
	}
	var out []string
	seen := make(map[DigestKey]bool)
	for _, o := range other.Entries {
		seen[o.DigestKey] = true
		mine := all.at(o.DigestKey)
		if *mine != o {
			out = append(out, difference(*mine, o))
		}
	}
	for _, mine := range d.Entries {
		if !seen[mine.DigestKey] {
			out = append(out, difference(mine, DigestSum{DigestKey: mine.DigestKey}))
		}
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
