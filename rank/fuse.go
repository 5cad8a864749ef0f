package rank

import (
	"cmp"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/embed"
)

// A Candidate is an artifact that a search has found.
type Candidate struct {
	Type, ID, State, Scope string
	Score                  float64
}

func (c *Candidate) key() [2]string { return [2]string{c.Type, c.ID} }

// Sort orders candidates: the best first, ties by ref.
func Sort(all []Candidate) {
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Type, b.Type), strings.Compare(a.ID, b.ID))
	})
}

// fuseRank is the k of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): a
// place in a list counts 1/(k + place).
const fuseRank = 60

// Fuse joins lists by reciprocal rank fusion. What a list says of scores counts for
// nothing, its order alone does.
func Fuse(lists ...[]Candidate) []Candidate {
	at := make(map[[2]string]int)
	var out []Candidate
	for _, list := range lists {
		for i, c := range list {
			n, known := at[c.key()]
			if !known {
				n = len(out)
				at[c.key()] = n
				c.Score = 0
				out = append(out, c)
			}
			out[n].Score += 1 / float64(fuseRank+i+1)
		}
	}
	Sort(out)
	return out
}

// Spare is how many more than are wanted a store chooses where its own arithmetic is
// not exact.
const Spare = 32

// A Near gathers the nearest of what is added.
type Near struct {
	To    embed.Vector
	Limit int
	found []Candidate
}

// Add compares a candidate's vector, of which it keeps nothing.
func (n *Near) Add(c Candidate, v embed.Vector) {
	if len(v) != len(n.To) {
		return
	}
	if c.Score = embed.Cosine(v, n.To); c.Score <= 0 {
		return
	}
	if n.found = append(n.found, c); len(n.found) >= 8*n.Limit {
		n.Found()
	}
}

// Found returns the nearest, those that point elsewhere left out.
func (n *Near) Found() []Candidate {
	Sort(n.found)
	n.found = n.found[:min(len(n.found), n.Limit)]
	return n.found
}
