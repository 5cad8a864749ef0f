package node

import (
	"slices"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/artifact"
)

// TestWordsAreAskedForTwice: the head of one version may come twice in a page, as
// when signals change its quality, and nobody was quick enough to make its words
// ahead.
func TestWordsAreAskedForTwice(t *testing.T) {
	rule := analysis.NewRule(&artifact.Schema{Type: "hypothesis"})
	v := &version{typ: "hypothesis", id: "h", revision: 1, content: []byte(`{"statement":"tau spreads"}`)}
	m := &madeAhead{rule: rule, id: v.id, title: "Tau", content: v.content, done: make(chan struct{})}
	x := &indexWriter{ahead: map[versionKey]*madeAhead{{v.typ, v.id, v.revision}: m}}
	made := make(chan []string)
	go func() {
		for range 2 {
			made <- x.columns(rule, v, "Tau")
		}
	}()
	want := rule.Document(v.id, "Tau", v.content).Row()
	for range 2 {
		select {
		case got := <-made:
			if !slices.Equal(got, want) {
				t.Errorf("words = %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the words never come")
		}
	}
}
