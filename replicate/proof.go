package replicate

import (
	"github.com/scidex-ai/substrate/artifact"
)

// A SignalSum is what signals of one artifact, kind and dimension come to.
type SignalSum struct {
	N, Voters  int64
	Sum, SumSq artifact.Decimal
}

// Add counts a signal: the value that replaces the voter's last one, if there is
// one and replace is true.
func (s *SignalSum) Add(value artifact.Decimal, last *artifact.Decimal, replace bool) {
	if last == nil {
		s.Voters++
	}
	if last != nil && replace {
		s.Sum, s.SumSq = s.Sum.Sub(*last), s.SumSq.Sub(last.Mul(*last))
	} else {
		s.N++
	}
	s.Sum, s.SumSq = s.Sum.Add(value), s.SumSq.Add(value.Mul(value))
}

// Aggregate returns the sum in the form of a signal's row.
func (s *SignalSum) Aggregate(kind, dimension string) artifact.Aggregate {
	return artifact.NewAggregate(kind, dimension, s.N, s.Voters, s.Sum, s.SumSq)
}

// ProveSignals finds the data of the rows of signals, which says the aggregate after
// each and so stands in no table: that of the signals up to it, or, once a move has
// written them again, up to the last one before that. All of one artifact, kind and
// dimension are given, in the order of their ids. Those whose data is found to be
// what its hash says get their aggregate; ok tells which. Last is what they all come
// to, one for each way of counting that fits.
func ProveSignals(signals []Signal, hashes []artifact.Hash) (ok []bool, last []artifact.Aggregate, err error) {
	ok = make([]bool, len(signals))
	fits := func(i int, sums []SignalSum) (*SignalSum, error) {
		g := signals[i]
		for k := range sums {
			g.Aggregate = sums[k].Aggregate(g.Kind, g.Dimension)
			_, hash, err := Encode(g)
			if err != nil {
				return nil, err
			}
			if hash == hashes[i] {
				signals[i].Aggregate, ok[i] = g.Aggregate, true
				return &sums[k], nil
			}
		}
		return nil, nil
	}
	sums := make([]SignalSum, 2) // counted as what replaces, and as what adds up
	before := make(map[string]artifact.Decimal)
	var open []int // not proved yet
	settle := func() error {
		left := open[:0]
		for _, i := range open {
			if found, err := fits(i, sums); err != nil {
				return err
			} else if found == nil {
				left = append(left, i)
			}
		}
		open = left
		return nil
	}
	for i := range signals {
		value, err := artifact.ParseSum(signals[i].Value.String())
		if err != nil {
			return nil, nil, err
		}
		next := []SignalSum{sums[0], sums[1]}
		var prior *artifact.Decimal
		if v, voted := before[signals[i].Voter]; voted {
			prior = &v
		}
		for k := range next {
			next[k].Add(value, prior, k == 0)
		}
		before[signals[i].Voter] = value
		found, err := fits(i, next)
		if err != nil {
			return nil, nil, err
		}
		if found == nil {
			open = append(open, i)
		} else {
			if len(open) > 0 { // were they written again just before it?
				if err := settle(); err != nil {
					return nil, nil, err
				}
			}
			next = []SignalSum{*found, *found}
		}
		sums = next
	}
	if err := settle(); err != nil {
		return nil, nil, err
	}
	if len(signals) > 0 {
		g := &signals[0]
		for k := range sums {
			last = append(last, sums[k].Aggregate(g.Kind, g.Dimension))
		}
	}
	return ok, last, nil
}
