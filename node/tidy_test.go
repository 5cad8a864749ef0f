package node_test

import (
	"fmt"
	"testing"
)

// TestTidy: many small commits leave many parts of the search index, which are few
// once it is tidied, and what is found is the same.
func TestTidy(t *testing.T) {
	s, f := newStore(t), newFeed(t, 10)
	apply(t, s, f.batch(f.schemas("paper")))
	for n := range 40 {
		apply(t, s, f.batch(f.write("paper", fmt.Sprint("p", n), "tau spreads")))
	}
	parts := func() int {
		n, err := s.SearchParts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := parts()
	if err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := parts(); before < 8 || after >= before/2 {
		t.Errorf("%d parts are %d after tidying", before, after)
	}
	if err := s.CheckSearch(t.Context()); err != nil {
		t.Errorf("the index is not whole: %v", err)
	}
}
