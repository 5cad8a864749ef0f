package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// merge measures the three-way merge of versions of 1 MB, and the patch that a
// conflict shows, against decoding the three copies by encoding/json.
func (b *bench) merge(ctx context.Context) error {
	var rows []row
	for _, kind := range []struct {
		name string
		of   func(changed int) artifact.Version
	}{{"members", membersChanged}, {"lines", linesChanged}} {
		for _, changed := range []int{10, 100, 1000, 2000} {
			base, ours, theirs := kind.of(0), kind.of(changed/2), kind.of(-changed/2)
			merge := row{name: fmt.Sprintf("merge of %d changed %s", changed, kind.name), unit: "ms"}
			diff := row{name: fmt.Sprintf("patch of %d changed %s", changed/2, kind.name), unit: "ms"}
			for range b.rounds {
				took, err := b.millis(ctx, func() error {
					for _, v := range []artifact.Version{base, ours, theirs} {
						var doc any
						if err := json.Unmarshal(v.Content, &doc); err != nil {
							return err
						}
					}
					return nil
				}, func() error {
					m, err := artifact.Merge(base, ours, theirs, []string{"text"})
					if err == nil && !m.Clean() {
						err = errors.New("the merge is not clean")
					}
					return err
				}, func() error {
					_, err := artifact.Diff(base, ours)
					return err
				})
				if err != nil {
					return err
				}
				merge.value, merge.floor = append(merge.value, took[1]), append(merge.floor, took[0])
				diff.value, diff.floor = append(diff.value, took[2]), append(diff.floor, took[0])
			}
			rows = append(rows, merge, diff)
		}
	}
	return b.table("Merge of versions of 1 MB (floor: json.Unmarshal of the three; target: ratio 10)", rows)
}

// benchParts is how many members or lines make 1 MB.
const benchParts = 10_000

// changedPart tells whether a part is one of n that a side changes, ours from
// the front (n > 0) and theirs (n < 0) two parts after each of ours.
func changedPart(i, n int) bool {
	if n < 0 {
		i, n = i-2, -n
	}
	return n > 0 && i >= 0 && i%(benchParts/n) == 0 && i/(benchParts/n) < n
}

func membersChanged(n int) artifact.Version {
	var s strings.Builder
	for i := range benchParts {
		if i%100 == 0 {
			fmt.Fprintf(&s, `},"group%04d":{`, i/100)
		} else {
			s.WriteByte(',')
		}
		value := i
		if changedPart(i, n) {
			value = -i - 1
		}
		fmt.Fprintf(&s, `"member%05d":{"label":"a member of the document, number %05d","tags":["a","b"],"value":%d}`, i, i, value)
	}
	return artifact.Version{Content: []byte("{" + s.String()[2:] + "}}"), Title: "Bench"}
}

func linesChanged(n int) artifact.Version {
	var s strings.Builder
	for i := range benchParts {
		word := "plain"
		if changedPart(i, n) {
			word = "changed"
		}
		fmt.Fprintf(&s, `This is line %05d of a text that two sides edit at once, which is %s, and it ends about here, so.\n`, i, word)
	}
	return artifact.Version{Content: []byte(`{"text":"` + s.String() + `"}`), Title: "Bench"}
}

// millis returns how long a call of each function takes, in ms, over one slice.
// They take turns, so that what else the machine does hits all of them.
func (b *bench) millis(ctx context.Context, calls ...func() error) ([]float64, error) {
	took, turns := make([]time.Duration, len(calls)), 0
	for start := time.Now(); ctx.Err() == nil && time.Since(start) < b.slice || turns == 0; turns++ {
		for i, call := range calls {
			begin := time.Now()
			if err := call(); err != nil {
				return nil, err
			}
			took[i] += time.Since(begin)
		}
	}
	millis := make([]float64, len(calls))
	for i, d := range took {
		millis[i] = float64(d.Nanoseconds()) / 1e6 / float64(turns)
	}
	return millis, ctx.Err()
}
