package rank_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
)

func list(ids ...string) (out []rank.Candidate) {
	for _, id := range ids {
		out = append(out, rank.Candidate{Type: "gene", ID: id, Score: 7})
	}
	return out
}

func TestFuse(t *testing.T) {
	for name, test := range map[string]struct {
		lists [][]rank.Candidate
		want  string
	}{
		"what is in both comes first": {[][]rank.Candidate{list("a", "b", "c"), list("x", "c")}, "[c a x b]"},
		"ties are by ref":             {[][]rank.Candidate{list("b"), list("a")}, "[a b]"},
		"one list keeps its order":    {[][]rank.Candidate{list("c", "a", "b"), nil}, "[c a b]"},
		"nothing":                     {nil, "[]"},
	} {
		got := rank.Fuse(test.lists...)
		ids := make([]string, len(got))
		for i, c := range got {
			ids[i] = c.ID
		}
		if fmt.Sprint(ids) != test.want {
			t.Errorf("%s: %v, want %s", name, ids, test.want)
		}
	}
	if got := rank.Fuse(list("a", "b"), list("b"))[0].Score; math.Abs(got-(1.0/62+1.0/61)) > 1e-12 {
		t.Errorf("second and first make %v", got)
	}
}

func TestNear(t *testing.T) {
	n := rank.Near{To: embed.Vector{127, 0}, Limit: 3}
	for i := range 100 {
		n.Add(rank.Candidate{Type: "gene", ID: strconv.Itoa(i)}, embed.Vector{100, byte(i)})
	}
	n.Add(rank.Candidate{Type: "gene", ID: "away"}, embed.Vector{0x81, 0})
	n.Add(rank.Candidate{Type: "gene", ID: "of another length"}, embed.Vector{127, 0, 0})
	got := n.Found()
	if len(got) != 3 || got[0].ID != "0" || got[0].Score != 1 || got[2].ID != "2" {
		t.Errorf("the nearest are %+v", got)
	}
	if n := (rank.Near{To: embed.Vector{1}, Limit: 3}); len(n.Found()) != 0 {
		t.Errorf("of nothing the nearest are %+v", n.Found())
	}
}
