package artifact

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	rows := func(values ...string) (rows []SignalRow) {
		for i, v := range values {
			d, err := ParseDecimal(v)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, SignalRow{Voter: fmt.Sprint("v", i), Value: d})
		}
		return rows
	}
	for name, c := range map[string]struct {
		rule SignalRule
		rows []SignalRow
		want string
	}{
		"listed values, and one that was listed once": {
			SignalRule{Values: []float64{1, 0, -1}},
			rows("1", "1.0", "2", "-1"),
			`[{"value":-1,"count":1},{"value":0,"count":0},{"value":1,"count":2},{"value":2,"count":1}]`,
		},
		"a range": {
			SignalRule{ValueRange: []float64{0, 10}},
			rows("0", "1", "9.99", "10", "11", "-1", "0.999999999999999999999"),
			`[{"from":0,"to":1,"count":1},{"from":1,"to":2,"count":2},{"from":2,"to":3,"count":0},{"from":3,"to":4,"count":0},{"from":4,"to":5,"count":0},` +
				`{"from":5,"to":6,"count":0},{"from":6,"to":7,"count":0},{"from":7,"to":8,"count":0},{"from":8,"to":9,"count":0},{"from":9,"to":10,"count":2}]`,
		},
		"neither": {SignalRule{}, rows("1"), `null`},
	} {
		t.Run(name, func(t *testing.T) {
			if raw, err := json.Marshal(c.rule.histogram(c.rows)); err != nil || string(raw) != c.want {
				t.Errorf("histogram = %s, %v, want %s", raw, err, c.want)
			}
		})
	}
}

// TestManySignals adds more rows than are kept: those that replace sum up as they
// would all together, and others are left at what is kept up as they come.
func TestManySignals(t *testing.T) {
	schema := Schema{Signals: map[string]SignalRule{
		"vote": {Aggregation: AggregateReplace, Values: []float64{-1, 0, 1}}, "fund": {Aggregation: AggregateSum},
	}}
	r := rand.New(rand.NewPCG(3, 4))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := start.Add(150_000 * time.Second)
	votes, funds := SignalGroup{Aggregate: Aggregate{Kind: "vote"}}, SignalGroup{Aggregate: Aggregate{Kind: "fund"}}
	whole := votes
	for i := range 230_000 {
		row := SignalRow{Voter: fmt.Sprint("v", r.IntN(9000)), Value: DecimalOf(float64(r.IntN(3) - 1)), At: start.Add(time.Duration(i) * time.Second)}
		schema.Add(&votes, row, at)
		schema.Add(&funds, row, at)
		whole.Rows = append(whole.Rows, row)
	}
	if len(votes.Rows) >= 2*maxSignalRows || funds.Rows != nil {
		t.Errorf("%d and %d rows are kept", len(votes.Rows), len(funds.Rows))
	}
	text := func(g *SignalGroup) string {
		raw, err := json.Marshal(schema.summarize(g, at))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if got, want := text(&votes), text(&whole); got != want {
		t.Errorf("votes = %s, want %s", got, want)
	}
	if v := schema.summarize(&funds, at); !v.Partial || v.Min != nil || v.DecayedMean != nil || v.QuadraticTotal != nil {
		t.Errorf("funds = %+v", v)
	}
}
