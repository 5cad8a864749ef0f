package artifact_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

var day0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func decimal(tb testing.TB, s string) artifact.Decimal {
	tb.Helper()
	d, err := artifact.ParseDecimal(s)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// row returns a signal of a day, with metadata if any.
func row(tb testing.TB, day int, voter, value, metadata string) artifact.SignalRow {
	tb.Helper()
	return artifact.SignalRow{Voter: voter, Value: decimal(tb, value), At: day0.AddDate(0, 0, day), Metadata: json.RawMessage(metadata)}
}

// A running sum is kept up row by row, as a store does: with each voter's last
// value at hand and nothing else.
type running struct {
	count, voters int64
	sum, sumSq    artifact.Decimal
	last          map[string]artifact.Decimal
}

func (r *running) add(voter string, value artifact.Decimal, mode string) {
	last, voted := r.last[voter]
	if !voted {
		r.voters++
	}
	if voted && mode == artifact.AggregateReplace {
		r.sum, r.sumSq = r.sum.Sub(last), r.sumSq.Sub(last.Mul(last))
	} else {
		r.count++
	}
	r.sum, r.sumSq = r.sum.Add(value), r.sumSq.Add(value.Mul(value))
	r.last[voter] = value
}

func TestSumSignals(t *testing.T) {
	modes := []string{artifact.AggregateReplace, artifact.AggregateSum, artifact.AggregateAppend}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mode := modes[seed%3]
		r := running{last: map[string]artifact.Decimal{}}
		var rows []artifact.SignalRow
		for range rng.IntN(60) {
			value := fmt.Sprintf("%d.%0*d", rng.Int64N(2000)-1000, 1+rng.IntN(20), rng.IntN(10))
			if rng.IntN(8) == 0 {
				value = []string{"1e20", "-1e-20", "0", "0.1", "123456789012345678901234567890.5"}[rng.IntN(5)]
			}
			s := row(t, 0, fmt.Sprint("v", rng.IntN(8)), value, "")
			rows = append(rows, s)
			r.add(s.Voter, s.Value, mode)

			got := artifact.SumSignals(rows, mode)
			if got.Count != r.count || got.Voters != r.voters || !got.Sum.Equal(r.sum) || !got.SumSq.Equal(r.sumSq) {
				t.Fatalf("seed %d: SumSignals(%s) = %d %d %s %s, row by row %d %d %s %s", seed, mode,
					got.Count, got.Voters, got.Sum, got.SumSq, r.count, r.voters, r.sum, r.sumSq)
			}
			counting := artifact.CountingSignals(rows, mode)
			least := slices.MinFunc(counting, func(a, b artifact.SignalRow) int { return sign(a.Value.Sub(b.Value)) })
			most := slices.MaxFunc(counting, func(a, b artifact.SignalRow) int { return sign(a.Value.Sub(b.Value)) })
			if !got.Min.Equal(least.Value) || !got.Max.Equal(most.Value) {
				t.Fatalf("seed %d: SumSignals(%s): %s to %s, want %s to %s", seed, mode, got.Min, got.Max, least.Value, most.Value)
			}
		}
	}
	t.Run("has the form that callers read", func(t *testing.T) {
		s := artifact.SumSignals([]artifact.SignalRow{row(t, 0, "a", "0.1", ""), row(t, 0, "b", "0.2", ""), row(t, 1, "a", "0.3", "")}, artifact.AggregateReplace)
		a := s.Aggregate("rank", "novelty")
		if a.Kind != "rank" || a.Dimension != "novelty" || a.Count != 2 || a.Sum != "0.5" || a.SumSq != "0.13" || *a.Mean != 0.25 {
			t.Errorf("Aggregate = %+v", a)
		}
	})
	t.Run("of nothing", func(t *testing.T) {
		if s := artifact.SumSignals(nil, artifact.AggregateSum); s.Count != 0 || s.Voters != 0 || s.Aggregate("", "").Mean != nil {
			t.Errorf("SumSignals = %+v", s)
		}
	})
}

func sign(d artifact.Decimal) int {
	switch f := d.Float(); {
	case f < 0:
		return -1
	case f > 0:
		return 1
	}
	return 0
}

func TestCountingSignals(t *testing.T) {
	rows := []artifact.SignalRow{row(t, 0, "a", "1", ""), row(t, 0, "b", "2", ""), row(t, 0, "a", "3", ""), row(t, 0, "c", "4", "")}
	for mode, want := range map[string]string{artifact.AggregateReplace: "[2 3 4]", artifact.AggregateSum: "[1 2 3 4]", artifact.AggregateAppend: "[1 2 3 4]"} {
		var got []string
		for _, r := range artifact.CountingSignals(rows, mode) {
			got = append(got, r.Value.String())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("CountingSignals(%s) = %v, want %s", mode, got, want)
		}
	}
}

func TestQuadraticTotal(t *testing.T) {
	tests := []struct {
		name string
		mode string
		rows []artifact.SignalRow
		want float64
		bad  bool
	}{
		{name: "nothing", mode: artifact.AggregateSum},
		{name: "one voter", mode: artifact.AggregateSum, rows: []artifact.SignalRow{row(t, 0, "a", "9", "")}, want: 9},
		{name: "many voters", mode: artifact.AggregateSum, rows: []artifact.SignalRow{row(t, 0, "a", "9", ""), row(t, 0, "b", "16", ""), row(t, 0, "c", "0", "")}, want: 49},
		{name: "a voter's parts", mode: artifact.AggregateSum, rows: []artifact.SignalRow{row(t, 0, "a", "4", ""), row(t, 0, "b", "16", ""), row(t, 0, "a", "5", "")}, want: 49},
		{name: "a replaced value", mode: artifact.AggregateReplace, rows: []artifact.SignalRow{row(t, 0, "a", "-4", ""), row(t, 0, "b", "16", ""), row(t, 0, "a", "9", "")}, want: 49},
		{name: "a negative value", mode: artifact.AggregateSum, rows: []artifact.SignalRow{row(t, 0, "a", "9", ""), row(t, 0, "a", "-1", "")}, bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := artifact.QuadraticTotal(tt.rows, tt.mode); got != tt.want || ok == tt.bad {
				t.Errorf("QuadraticTotal = %v, %t, want %v, %t", got, ok, tt.want, !tt.bad)
			}
		})
	}
	t.Run("lies between the sum and n times it", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			var rows []artifact.SignalRow
			for range 1 + rng.IntN(20) {
				rows = append(rows, row(t, 0, strconv.Itoa(rng.IntN(6)), fmt.Sprintf("%d.%02d", rng.IntN(1000), rng.IntN(100)), ""))
			}
			s := artifact.SumSignals(rows, artifact.AggregateSum)
			got, _ := artifact.QuadraticTotal(rows, artifact.AggregateSum)
			if sum := s.Sum.Float(); got < sum*(1-1e-9) || got > sum*float64(s.Voters)*(1+1e-9) {
				t.Fatalf("QuadraticTotal = %v of %v by %d voters", got, sum, s.Voters)
			}
		}
	})
}

func TestDecayedMean(t *testing.T) {
	rows := []artifact.SignalRow{row(t, 0, "a", "1", ""), row(t, 30, "b", "4", ""), row(t, 60, "a", "0", "")}
	tests := []struct {
		name      string
		mode      string
		day       int
		mean, sum float64
		count     int64
	}{
		{name: "before all", mode: artifact.AggregateAppend, day: -1},
		{name: "one", mode: artifact.AggregateAppend, day: 0, mean: 1, sum: 1, count: 1},
		{name: "one, later", mode: artifact.AggregateAppend, day: 29, mean: 1, sum: math.Exp2(-29. / 30), count: 1},
		{name: "two, an old one weighs half", mode: artifact.AggregateAppend, day: 30, mean: 3, sum: 4.5, count: 2},
		{name: "what replaces is not there yet", mode: artifact.AggregateReplace, day: 30, mean: 3, sum: 4.5, count: 2},
		{name: "all", mode: artifact.AggregateAppend, day: 60, mean: (.25 + 2) / 1.75, sum: 2.25, count: 3},
		{name: "replaced", mode: artifact.AggregateReplace, day: 90, mean: 2 / 1.5, sum: 1, count: 2},
		{name: "the mean outlives the forces", mode: artifact.AggregateReplace, day: 100_000, mean: 2 / 1.5, count: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := artifact.DecayedMean(rows, tt.mode, day0.AddDate(0, 0, tt.day))
			if math.Abs(got.Mean-tt.mean) > 1e-12 || math.Abs(got.Sum-tt.sum) > 1e-12 || got.Count != tt.count {
				t.Errorf("DecayedMean = %+v, want %v %v %d", got, tt.mean, tt.sum, tt.count)
			}
		})
	}
	t.Run("lies within the values", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for range 200 {
			var rows []artifact.SignalRow
			for range 1 + rng.IntN(20) {
				rows = append(rows, row(t, rng.IntN(100_000), strconv.Itoa(rng.IntN(6)), strconv.Itoa(rng.IntN(100)), ""))
			}
			s := artifact.SumSignals(rows, artifact.AggregateReplace)
			d := artifact.DecayedMean(rows, artifact.AggregateReplace, day0.AddDate(0, 0, 100_000))
			if d.Mean < s.Min.Float()-1e-9 || d.Mean > s.Max.Float()+1e-9 || d.Count != s.Count {
				t.Fatalf("DecayedMean = %+v of %s to %s", d, s.Min, s.Max)
			}
		}
	})
}

func TestEloRatings(t *testing.T) {
	against := func(name string) string { return `{"opponent":"` + name + `"}` }
	t.Run("moves both sides", func(t *testing.T) {
		got := artifact.EloRatings([]artifact.SignalRow{row(t, 0, "a", "1", against("b"))})
		want := []artifact.Rating{{Agent: "a", Duels: 1, Rating: 1516}, {Agent: "b", Duels: 1, Rating: 1484}}
		if !slices.Equal(got, want) {
			t.Errorf("EloRatings = %v, want %v", got, want)
		}
	})
	t.Run("favours neither in a draw of equals", func(t *testing.T) {
		got := artifact.EloRatings([]artifact.SignalRow{row(t, 0, "b", "0.5", against("a")), row(t, 0, "c", "0", against("c"))})
		want := []artifact.Rating{{Agent: "a", Duels: 1, Rating: 1500}, {Agent: "b", Duels: 1, Rating: 1500}}
		if !slices.Equal(got, want) {
			t.Errorf("EloRatings = %v, want %v", got, want)
		}
	})
	t.Run("expects more of the better", func(t *testing.T) {
		got := artifact.EloRatings([]artifact.SignalRow{row(t, 0, "a", "1", against("b")), row(t, 0, "b", "1", against("a"))})
		// Expected of b: 1/(1+10^(32/400)) = 0.454076
		if got[0].Agent != "b" || math.Abs(got[0].Rating-(1484+32*(1-0.4540759))) > 1e-4 {
			t.Errorf("EloRatings = %v", got)
		}
	})
	t.Run("passes over what tells no duel", func(t *testing.T) {
		rows := []artifact.SignalRow{
			row(t, 0, "a", "1", ""), row(t, 0, "a", "1", "null"), row(t, 0, "a", "1", "{}"), row(t, 0, "a", "1", `{"opponent":7}`),
			row(t, 0, "a", "0.7", against("b")), row(t, 0, "a", "-1", against("b")), row(t, 0, "a", "1", `[`),
		}
		if got := artifact.EloRatings(rows); len(got) != 0 {
			t.Errorf("EloRatings = %v, want none", got)
		}
	})
	t.Run("neither makes nor loses points", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		var rows []artifact.SignalRow
		for range 2000 {
			rows = append(rows, row(t, 0, strconv.Itoa(rng.IntN(9)), []string{"0", "0.5", "1"}[rng.IntN(3)], against(strconv.Itoa(rng.IntN(9)))))
		}
		total, duels := 0.0, int64(0)
		all := artifact.EloRatings(rows)
		for _, r := range all {
			total += r.Rating
			duels += r.Duels
		}
		if math.Abs(total-1500*float64(len(all))) > 1e-6 || duels%2 != 0 {
			t.Errorf("%v points in %d duels of %d", total, duels, len(all))
		}
		if again := artifact.EloRatings(rows); !slices.Equal(all, again) {
			t.Error("EloRatings is not the same twice")
		}
	})
}

func TestBrierHistory(t *testing.T) {
	rows := []artifact.SignalRow{
		row(t, 0, "a", "0.7", `{"outcome":1}`),
		row(t, 1, "b", "0.7", `{"outcome":0}`),
		row(t, 2, "a", "0.7", `{"outcome":null}`),
		row(t, 3, "a", "0.7", ""),
		row(t, 4, "a", "1.1", `{"outcome":1}`),
		row(t, 5, "a", "-0.1", `{"outcome":1}`),
		row(t, 6, "a", "0.7", `{"outcome":0.5}`),
		row(t, 7, "a", "0.7", `{"outcome":"1"}`),
		row(t, 8, "a", "1", `{"outcome":1}`),
	}
	want := []artifact.BrierPoint{
		{At: rows[0].At, Voter: "a", Forecast: "0.7", Outcome: 1, Score: "0.09", Mean: 0.09},
		{At: rows[1].At, Voter: "b", Forecast: "0.7", Outcome: 0, Score: "0.49", Mean: 0.29},
		{At: rows[8].At, Voter: "a", Forecast: "1", Outcome: 1, Score: "0", Mean: 0.58 / 3},
	}
	if got := artifact.BrierHistory(rows); !slices.Equal(got, want) {
		t.Errorf("BrierHistory = %+v, want %+v", got, want)
	}
}
