package verb

import (
	_ "embed"
	"encoding/json"
	"slices"
	"sync"
)

// An Example is a request that was run on a hub, and what came of it. What differs
// from run to run (ids, times, places in the log, secrets) is made the same.
type Example struct {
	Verb     string          `json:"verb"`
	Title    string          `json:"title"` // what it shows
	Status   int             `json:"status"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

//go:embed examples.json
var examplesFile []byte

var examples = sync.OnceValue(func() (all []Example) {
	if err := json.Unmarshal(examplesFile, &all); err != nil {
		panic("verb: examples.json: " + err.Error())
	}
	return all
})

// Examples returns the examples that docs/VERBS.md and the OpenAPI document show, in
// the order in which they were run. They are generated with those.
func Examples() []Example { return slices.Clone(examples()) }

// ExamplesOf returns those of one verb.
func ExamplesOf(all []Example, name string) (some []Example) {
	for _, e := range all {
		if e.Verb == name {
			some = append(some, e)
		}
	}
	return some
}
