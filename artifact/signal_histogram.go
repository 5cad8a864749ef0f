package artifact

import (
	"cmp"
	"slices"
)

// A HistogramBar is how many signals have a value, or one in a range.
type HistogramBar struct {
	Value *float64 `json:"value,omitempty" jsonschema:"of a kind that lists its values"`
	From  *float64 `json:"from,omitempty" jsonschema:"of a kind with a range: the least value in the bar"`
	To    *float64 `json:"to,omitempty" jsonschema:"of a kind with a range: what the values in the bar are below; the last bar holds it too"`
	Count int64    `json:"count"`
}

// Bounds of a histogram.
const (
	rangeBars = 10
	valueBars = 50 // of values that a kind lists, or listed once
)

// histogram counts rows by value. A kind with neither values nor a range has none.
// Values outside the range, which an earlier schema allowed, are in no bar.
func (r *SignalRule) histogram(rows []SignalRow) []HistogramBar {
	switch {
	case len(r.Values) > 0:
		return r.valueHistogram(rows)
	case len(r.ValueRange) == 2 && r.ValueRange[0] < r.ValueRange[1]:
		return r.rangeHistogram(rows)
	}
	return nil
}

func (r *SignalRule) valueHistogram(rows []SignalRow) []HistogramBar {
	counts := make(map[float64]int64)
	for _, v := range r.Values {
		counts[v] = 0
	}
	for i := range rows {
		counts[rows[i].Value.Float()]++
	}
	bars := make([]HistogramBar, 0, len(counts))
	for v, n := range counts {
		bars = append(bars, HistogramBar{Value: &v, Count: n})
	}
	slices.SortFunc(bars, func(a, b HistogramBar) int { return cmp.Compare(*a.Value, *b.Value) })
	return bars[:min(len(bars), valueBars)]
}

func (r *SignalRule) rangeHistogram(rows []SignalRow) []HistogramBar {
	least, greatest := r.ValueRange[0], r.ValueRange[1]
	var edges [rangeBars + 1]float64
	for i := range edges {
		edges[i] = least + float64((greatest-least)*float64(i)/rangeBars) // float64: no fused multiply-add, which differs by machine
	}
	edges[rangeBars] = greatest
	bars := make([]HistogramBar, rangeBars)
	for i := range bars {
		bars[i].From, bars[i].To = &edges[i], &edges[i+1]
	}
	for i := range rows {
		v := rows[i].Value.Float()
		if v < least || v > greatest {
			continue
		}
		at, found := slices.BinarySearch(edges[:], v)
		if !found {
			at--
		}
		bars[min(at, rangeBars-1)].Count++
	}
	return bars
}
