package artifact

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"
)

// A SignalRow is what a signal's statistics read of it. All functions here take
// the rows of one kind and dimension in the order of their seq, oldest first,
// and so give the same answer over every store. A weight is no part of any of
// them, as it is none of an [Aggregate].
type SignalRow struct {
	Voter    string
	Value    Decimal
	At       time.Time
	Metadata json.RawMessage // null or absent: none
}

// A SignalSum sums up the rows that count, exactly.
type SignalSum struct {
	Count    int64
	Voters   int64
	Sum      Decimal
	SumSq    Decimal
	Min, Max Decimal // zero without rows
}

// Aggregate returns the sums in the form that callers read.
func (s *SignalSum) Aggregate(kind, dimension string) Aggregate {
	return NewAggregate(kind, dimension, s.Count, s.Voters, s.Sum, s.SumSq)
}

// SumSignals recomputes from all rows what a store keeps up row by row.
func SumSignals(rows []SignalRow, mode string) SignalSum {
	var s SignalSum
	voters := make(map[string]struct{})
	for _, r := range CountingSignals(rows, mode) {
		voters[r.Voter] = struct{}{}
		if s.Count == 0 || r.Value.r.Cmp(&s.Min.r) < 0 {
			s.Min = r.Value
		}
		if s.Count == 0 || r.Value.r.Cmp(&s.Max.r) > 0 {
			s.Max = r.Value
		}
		s.Count++
		s.Sum = s.Sum.Add(r.Value)
		s.SumSq = s.SumSq.Add(r.Value.Mul(r.Value))
	}
	s.Voters = int64(len(voters))
	return s
}

// CountingSignals returns the rows that count in a kind of this mode of
// aggregation, in their order: each voter's last if they replace, else all.
func CountingSignals(rows []SignalRow, mode string) []SignalRow {
	if mode != AggregateReplace {
		return rows
	}
	last := make(map[string]int, len(rows))
	for i := range rows {
		last[rows[i].Voter] = i
	}
	counting := make([]SignalRow, 0, len(last))
	for i := range rows {
		if last[rows[i].Voter] == i {
			counting = append(counting, rows[i])
		}
	}
	return counting
}

// QuadraticTotal returns (Σ√v)², where v is what one voter gave: all of their
// rows that count. Funding that is split over many signals weighs no more than
// funding at once (Buterin, Hitzig and Weyl 2019). ok is false when a row that
// counts is negative: such kinds have no quadratic total. The sum over a voter is
// exact; roots and their sum are doubles, right to about n×2^-53 for n voters.
func QuadraticTotal(rows []SignalRow, mode string) (total float64, ok bool) {
	var order []string
	given := make(map[string]Decimal)
	for _, r := range CountingSignals(rows, mode) {
		if r.Value.r.Sign() < 0 {
			return 0, false
		}
		sum, seen := given[r.Voter]
		if !seen {
			order = append(order, r.Voter)
		}
		given[r.Voter] = sum.Add(r.Value)
	}
	roots := 0.0
	for _, voter := range order {
		roots += math.Sqrt(given[voter].Float())
	}
	return roots * roots, true
}

// DecayHalfLife is how long it takes a signal to lose half of its force.
const DecayHalfLife = 30 * 24 * time.Hour

// A Decay is the mean of signals, each with the force 2^(-age/[DecayHalfLife]).
// Its numbers are doubles, right to about n×2^-52 for n rows.
type Decay struct {
	Mean  float64 // zero when Count is
	Sum   float64 // of value × force at the given time: falls as signals age, the mean does not
	Count int64   // rows that count and are not later than the given time
}

// DecayedMean returns the mean and sum of the signals that counted at a time;
// later rows are as if they were not there. The mean depends on the time by
// nothing else: all signals age alike. In it forces are taken relative to the
// newest row's, so that no age makes them vanish.
func DecayedMean(rows []SignalRow, mode string, at time.Time) Decay {
	var d Decay
	rows = slices.DeleteFunc(slices.Clone(rows), func(r SignalRow) bool { return r.At.After(at) })
	rows = CountingSignals(rows, mode)
	if len(rows) == 0 {
		return d
	}
	newest := rows[0].At
	for i := range rows {
		if rows[i].At.After(newest) {
			newest = rows[i].At
		}
	}
	sum, forces := 0.0, 0.0
	for i := range rows {
		force := math.Exp2(-halfLives(newest.Sub(rows[i].At)))
		forces += force
		sum += float64(force * rows[i].Value.Float()) // float64: no fused multiply-add, which differs by machine
	}
	d.Count = int64(len(rows))
	d.Mean = sum / forces
	d.Sum = sum * math.Exp2(-halfLives(at.Sub(newest)))
	return d
}

func halfLives(age time.Duration) float64 { return float64(age) / float64(DecayHalfLife) }

// Elo's constants for duels.
const (
	EloStart = 1500
	EloK     = 32
)

// A Rating is an agent's place by the duels that it was in.
type Rating struct {
	Agent  string  `json:"agent"`
	Duels  int64   `json:"duels"`
	Rating float64 `json:"rating"`
}

// EloRatings returns the ratings of all that took part in duels, best first and
// then by name. A row tells one duel: the value is what its voter won against
// the metadata's opponent, 1, 0.5 or 0. All start at [EloStart]; each duel, in
// row order, moves both sides by [EloK] times what was not expected (Elo 1978),
// in doubles. Rows of another value, without an opponent or against oneself tell
// no duel. Replacement is not looked at: each row is a duel of its own.
func EloRatings(rows []SignalRow) []Rating {
	t := EloTable{}
	for i := range rows {
		t.Add(&rows[i])
	}
	return t.Ratings()
}

// An EloTable holds ratings as [EloRatings] makes them, row by row. Its memory is of
// those who took part, whatever number of duels there were.
type EloTable map[string]*Rating

func (t EloTable) of(agent string) *Rating {
	r := t[agent]
	if r == nil {
		r = &Rating{Agent: agent, Rating: EloStart}
		t[agent] = r
	}
	return r
}

// Add takes the next row, oldest first.
func (t EloTable) Add(row *SignalRow) {
	result := row.Value.Float()
	opponent := duelOpponent(row.Metadata)
	if result != 0 && result != 0.5 && result != 1 || opponent == "" || opponent == row.Voter {
		return
	}
	a, b := t.of(row.Voter), t.of(opponent)
	expected := 1 / (1 + math.Pow(10, (b.Rating-a.Rating)/400))
	moved := float64(EloK * (result - expected))
	a.Rating += moved
	b.Rating -= moved
	a.Duels++
	b.Duels++
}

// Duels are the tables of a type's duels, by dimension.
type Duels map[string]EloTable

// Add takes the next row of a dimension, oldest first.
func (d Duels) Add(dimension string, row *SignalRow) {
	if d[dimension] == nil {
		d[dimension] = EloTable{}
	}
	d[dimension].Add(row)
}

// Ratings returns the ratings, best first and then by name.
func (t EloTable) Ratings() []Rating {
	all := make([]Rating, 0, len(t))
	for _, r := range t {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Rating) int {
		return cmp.Or(cmp.Compare(b.Rating, a.Rating), cmp.Compare(a.Agent, b.Agent))
	})
	return all
}

func duelOpponent(metadata json.RawMessage) string {
	var m struct {
		Opponent string `json:"opponent"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil {
		return ""
	}
	return m.Opponent
}

// A BrierPoint is one forecast of a calibration trace, once its outcome is known.
type BrierPoint struct {
	At       time.Time   `json:"at"`
	Forecast json.Number `json:"forecast"` // probability
	Mean     float64     `json:"mean"`     // of the scores so far, this one included
	Outcome  int         `json:"outcome"`  // 1: it came true; 0: it did not
	Score    json.Number `json:"score"`    // (forecast − outcome)²: 0 is best, 1 worst; exact
	Voter    string      `json:"voter"`
}

// BrierHistory returns the calibration trace of these rows (Brier 1950). A row's
// value is the forecast, a probability from 0 to 1, and its metadata's outcome
// is the number 0 or 1. Rows without either tell nothing yet and are left out.
func BrierHistory(rows []SignalRow) []BrierPoint {
	var points []BrierPoint
	var total Decimal
	for i := range rows {
		outcome, known := forecastOutcome(rows[i].Metadata)
		forecast := rows[i].Value
		if f := &forecast.r; !known || f.Sign() < 0 || f.Cmp(&decimalOne.r) > 0 {
			continue
		}
		missed := forecast
		if outcome == 1 {
			missed = forecast.Sub(decimalOne)
		}
		score := missed.Mul(missed)
		total = total.Add(score)
		points = append(points, BrierPoint{
			At: rows[i].At, Voter: rows[i].Voter, Outcome: outcome,
			Forecast: json.Number(forecast.String()), Score: json.Number(score.String()),
			Mean: total.Float() / float64(len(points)+1),
		})
	}
	return points
}

var decimalOne = func() (d Decimal) {
	d.r.SetInt64(1)
	return d
}()

func forecastOutcome(metadata json.RawMessage) (outcome int, known bool) {
	var m struct {
		Outcome *float64 `json:"outcome"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil || m.Outcome == nil || *m.Outcome != 0 && *m.Outcome != 1 {
		return 0, false
	}
	return int(*m.Outcome), true
}
