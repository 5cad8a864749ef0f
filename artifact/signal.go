package artifact

import "encoding/json"

// An Aggregate sums up the signals of one kind and dimension on an artifact. In
// kinds that replace, only each voter's latest signal counts. Its fields stand
// in the order of their JSON names, as rows on the wire need.
type Aggregate struct {
	Count     int64       `json:"count"` // signals that count
	Dimension string      `json:"dimension"`
	Kind      string      `json:"kind"`
	Mean      *float64    `json:"mean"` // null without signals
	Sum       json.Number `json:"sum"`
	SumSq     json.Number `json:"sum_sq"` // of squares
	Voters    int64       `json:"voters"`
}

// NewAggregate returns the aggregate of these sums.
func NewAggregate(kind, dimension string, count, voters int64, sum, sumSq Decimal) Aggregate {
	a := Aggregate{
		Kind: kind, Dimension: dimension, Count: count, Voters: voters,
		Sum: json.Number(sum.String()), SumSq: json.Number(sumSq.String()),
	}
	if count > 0 {
		mean := sum.Float() / float64(count)
		a.Mean = &mean
	}
	return a
}
