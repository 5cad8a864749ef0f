package artifact

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of signal that mean something to the substrate itself.
const (
	KindRank = "rank" // its means make the quality score
	KindDuel = "duel" // what the artifact won against another: 1, 0.5 or 0
)

// MetricBrier is the metric of kinds whose signals are forecasts.
const MetricBrier = "brier"

// A SignalGroup is what a store holds of one kind and dimension: the aggregate that
// it keeps up, and the rows.
type SignalGroup struct {
	Aggregate
	Rows    []SignalRow
	partial bool // there are more rows than are looked at: none are
}

// maxSignalRows is how many rows of one group are looked at, and their voters in
// kinds that replace. More are kept for a while, so that few are looked through.
const maxSignalRows = 50_000

// Add takes the next row, oldest first. At is the time that the summary is of.
func (s *Schema) Add(g *SignalGroup, r SignalRow, at time.Time) {
	if g.partial {
		return
	}
	rule := s.Signals[g.Kind]
	if rule.Metric != MetricBrier {
		r.Metadata = nil // which nothing looks at
	}
	if g.Rows = append(g.Rows, r); len(g.Rows) < 2*maxSignalRows {
		return
	}
	if rule.Aggregation == AggregateReplace {
		g.Rows = lastOfVoters(g.Rows, at)
	}
	if g.partial = len(g.Rows) > maxSignalRows; g.partial {
		g.Rows = nil
	}
}

// lastOfVoters keeps each voter's last row, and the last one up to a time.
func lastOfVoters(rows []SignalRow, at time.Time) []SignalRow {
	type last struct {
		voter string
		later bool
	}
	where := make(map[last]int)
	for i := range rows {
		where[last{rows[i].Voter, rows[i].At.After(at)}] = i
	}
	kept := rows[:0]
	for i := range rows {
		if where[last{rows[i].Voter, rows[i].At.After(at)}] == i {
			kept = append(kept, rows[i])
		}
	}
	clear(rows[len(kept):])
	return kept
}

// A SignalSummary is all that is told of the signals of one kind and dimension.
type SignalSummary struct {
	Kind        string      `json:"kind"`
	Dimension   string      `json:"dimension"`   // "" for none
	Aggregation string      `json:"aggregation"` // replace: each voter's latest counts; sum, append: all do
	Currency    string      `json:"currency,omitempty"`
	Metric      string      `json:"metric,omitempty"`
	Count       int64       `json:"count"` // signals that count
	Voters      int64       `json:"voters"`
	Sum         json.Number `json:"sum"`
	Mean        *float64    `json:"mean"` // null without signals, as Min and Max
	Min         *float64    `json:"min"`
	Max         *float64    `json:"max"`
	// QuadraticTotal is (Σ√v)² over voters, of kinds that sum up and have no
	// negative value.
	QuadraticTotal *float64 `json:"quadratic_total,omitempty"`
	// DecayedMean is the mean at the answer's time, each signal with the force that
	// is left of it: half after 30 days.
	DecayedMean *float64    `json:"decayed_mean,omitempty"`
	Elo         *EloPlace   `json:"elo,omitempty"`   // of duels
	Brier       *BrierTrace `json:"brier,omitempty"` // of forecasts
	// Histogram has a bar for each value of kinds that list them, and ten of one width
	// over the range of kinds that have one.
	Histogram []HistogramBar `json:"histogram,omitempty" jsonschema:"of the signals that count: a bar for each value that the kind lists, or ten over its range"`
	// Partial tells that there are too many signals to look at each: what is told is
	// what is kept up as they come.
	Partial bool `json:"partial,omitempty" jsonschema:"true: there are too many signals to look at each, so that min, max, quadratic_total, decayed_mean, brier and histogram are left out"`
}

// An EloPlace is where an artifact stands by the duels of its type that the reader
// may see.
type EloPlace struct {
	Rating float64 `json:"rating"`
	Duels  int64   `json:"duels"`
	Place  int     `json:"place"` // 1 is the best
	Of     int     `json:"of"`    // how many took part
}

// A BrierTrace is the calibration of forecasts whose outcome is known.
type BrierTrace struct {
	Forecasts int          `json:"forecasts"`
	Mean      *float64     `json:"mean"`    // of the scores; null without
	History   []BrierPoint `json:"history"` // the last 1000, oldest first
}

// maxBrierHistory bounds the points of a trace that are told.
const maxBrierHistory = 1000

// SummarizeSignals returns what is told of an artifact's signals, by kind and
// dimension in order; hub and nodes answer what it makes of their rows. Duels are
// those of all artifacts of the type, by dimension, each with the ref of what it
// is on as its voter.
func (s *Schema) SummarizeSignals(ref string, groups []SignalGroup, duels Duels, at time.Time) []SignalSummary {
	all := make([]SignalSummary, 0, len(groups))
	dueled := make(map[string]bool)
	for i := range groups {
		all = append(all, s.summarize(&groups[i], at))
		dueled[groups[i].Dimension] = dueled[groups[i].Dimension] || groups[i].Kind == KindDuel
	}
	for dimension := range duels { // in which others have met it
		if !dueled[dimension] {
			all = append(all, s.summarize(&SignalGroup{Aggregate: NewAggregate(KindDuel, dimension, 0, 0, Decimal{}, Decimal{})}, at))
		}
	}
	for i := range all {
		if all[i].Kind == KindDuel {
			all[i].Elo = eloPlace(duels[all[i].Dimension].Ratings(), ref)
		}
	}
	all = slices.DeleteFunc(all, func(v SignalSummary) bool { return v.Count == 0 && v.Elo == nil })
	slices.SortFunc(all, func(a, b SignalSummary) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Dimension, b.Dimension))
	})
	return all
}

func (s *Schema) summarize(g *SignalGroup, at time.Time) SignalSummary {
	rule := s.Signals[g.Kind] // zero for one that the type has no more: its rows all count
	v := SignalSummary{
		Kind: g.Kind, Dimension: g.Dimension, Aggregation: rule.Aggregation, Currency: rule.Currency, Metric: rule.Metric,
		Count: g.Count, Voters: g.Voters, Sum: g.Sum, Mean: g.Mean, Partial: g.partial,
	}
	if len(g.Rows) == 0 {
		return v
	}
	v.Histogram = rule.histogram(CountingSignals(g.Rows, rule.Aggregation))
	sums := SumSignals(g.Rows, rule.Aggregation)
	least, greatest := sums.Min.Float(), sums.Max.Float()
	v.Min, v.Max = &least, &greatest
	if rule.Aggregation == AggregateSum {
		if total, ok := QuadraticTotal(g.Rows, rule.Aggregation); ok {
			v.QuadraticTotal = &total
		}
	}
	if d := DecayedMean(g.Rows, rule.Aggregation, at); d.Count > 0 && g.Kind != KindDuel {
		v.DecayedMean = &d.Mean
	}
	if rule.Metric == MetricBrier {
		v.Brier = brierTrace(BrierHistory(g.Rows))
	}
	return v
}

func eloPlace(ratings []Rating, ref string) *EloPlace {
	i := slices.IndexFunc(ratings, func(r Rating) bool { return r.Agent == ref })
	if i < 0 {
		return nil
	}
	return &EloPlace{Rating: ratings[i].Rating, Duels: ratings[i].Duels, Place: i + 1, Of: len(ratings)}
}

func brierTrace(points []BrierPoint) *BrierTrace {
	t := &BrierTrace{Forecasts: len(points), History: append([]BrierPoint{}, points[max(0, len(points)-maxBrierHistory):]...)}
	if n := len(points); n > 0 {
		t.Mean = &points[n-1].Mean
	}
	return t
}

// CheckKinds returns what is wrong with the kinds of signal that are asked for.
func (s *Schema) CheckKinds(kinds []string, at string) (problems []Problem) {
	for i, kind := range kinds {
		if _, ok := s.Signals[kind]; !ok {
			p := s.CheckSignal(kind, "", Decimal{}, "")[0]
			p.Path = at + "/" + strconv.Itoa(i)
			problems = append(problems, p)
		}
	}
	return problems
}

// CheckDuel returns what keeps a duel's value and metadata from telling one, and
// otherwise the opponent.
func CheckDuel(value Decimal, metadata json.RawMessage, at string) (opponent Ref, problems []Problem) {
	if !value.Equal(DecimalOf(0)) && !value.Equal(DecimalOf(0.5)) && !value.Equal(DecimalOf(1)) {
		problems = append(problems, Problem{Path: at + "/value", Constraint: "enum", Value: json.RawMessage(value.String()), Message: "a duel is won, 1, drawn, 0.5, or lost, 0"})
	}
	p := Problem{Path: at + "/metadata/opponent", Constraint: "opponent", Message: "a duel names its opponent: type:id of an artifact of the same type"}
	text := duelOpponent(metadata)
	ref, err := ParseRef(text)
	if err != nil || ref.IsPinned() {
		if text != "" {
			p.Value = Received(text)
		}
		return Ref{}, append(problems, p)
	}
	return ref, problems
}

// Quality returns the quality score of an artifact of this type: the mean of its
// rank aggregates over the type's dimensions, nil without any. Of returns the mean
// of one dimension, or nil.
func (s *Schema) Quality(of func(dimension string) *float64) *float64 {
	dimensions := s.Signals[KindRank].Dimensions
	if len(dimensions) == 0 {
		return of("")
	}
	sum, n := 0.0, 0
	for _, d := range dimensions {
		if mean := of(d); mean != nil {
			sum, n = sum+*mean, n+1
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}
