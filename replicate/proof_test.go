package replicate_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// votes makes the signals of three voters in turn, as a hub stores them, with the
// hashes of their rows. Those up to moved were written again once so many were there.
func votes(t *testing.T, n int, replace bool, moved ...int) (signals []replicate.Signal, hashes []artifact.Hash) {
	t.Helper()
	var sum replicate.SignalSum
	last := make(map[string]artifact.Decimal)
	hash := func(i int, after *replicate.SignalSum) artifact.Hash {
		g := signals[i]
		g.Aggregate = after.Aggregate(g.Kind, g.Dimension)
		_, h, err := replicate.Encode(g)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for i := range n {
		value := strconv.Itoa(i%5 - 2)
		g := replicate.Signal{
			At: time.Unix(int64(i), 0).UTC(), By: "ada", ID: fmt.Sprintf("s-%03d", i), Kind: "rating", Ref: "paper:p", Scope: artifact.Commons,
			Value: json.Number(value), Voter: fmt.Sprint("voter-", i%3), VoterKind: "human", Weight: "1", Metadata: json.RawMessage("null"),
		}
		d, err := artifact.ParseDecimal(value)
		if err != nil {
			t.Fatal(err)
		}
		var prior *artifact.Decimal
		if p, ok := last[g.Voter]; ok {
			prior = &p
		}
		sum.Add(d, prior, replace)
		last[g.Voter] = d
		signals = append(signals, g)
		hashes = append(hashes, hash(i, &sum))
		for _, m := range moved {
			if m == i+1 {
				for k := range hashes {
					hashes[k] = hash(k, &sum)
				}
			}
		}
	}
	return signals, hashes
}

func TestProveSignals(t *testing.T) {
	for name, c := range map[string]struct {
		n       int
		replace bool
		moved   []int
	}{
		"none": {}, "one": {n: 1, replace: true}, "each replaces": {n: 12, replace: true}, "all count": {n: 12},
		"moved at the end": {n: 12, replace: true, moved: []int{12}}, "moved amid": {n: 12, moved: []int{5}}, "moved twice": {n: 12, replace: true, moved: []int{4, 9}},
		"moved with the first": {n: 3, replace: true, moved: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			signals, hashes := votes(t, c.n, c.replace, c.moved...)
			ok, last, err := replicate.ProveSignals(signals, hashes)
			if err != nil || len(ok) != c.n {
				t.Fatalf("ProveSignals = %v, %v", ok, err)
			}
			for i := range ok {
				raw, hash, err := replicate.Encode(signals[i])
				if !ok[i] || hash != hashes[i] || err != nil {
					t.Errorf("signal %d is not proved: %s, %v", i, raw, err)
				}
			}
			if c.n > 0 && last[0].Count == 0 {
				t.Errorf("the sums are %+v", last)
			}
			if c.n < 2 {
				return
			}
			signals, hashes = votes(t, c.n, c.replace, c.moved...)
			signals[1].Reason = "tampered"
			if ok, _, err = replicate.ProveSignals(signals, hashes); err != nil || ok[1] {
				t.Errorf("a signal that was changed: %v, %v", ok, err)
			}
			for i := range ok {
				if i != 1 && !ok[i] {
					t.Errorf("signal %d is not proved beside one that was changed", i)
				}
			}
		})
	}
}
