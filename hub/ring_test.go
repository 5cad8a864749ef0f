package hub

import (
	"math/rand/v2"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// TestRing adds commits of random sizes, over a jump of epochs, and compares
// what readers get at every seq to the whole log.
func TestRing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r := &ring{limit: random.IntN(4000), changed: make(chan struct{})}
		var log []entry // of whole commits
		var seq artifact.Seq
		r.begin(chainCursor{}, 0)
		for step := range 40 {
			if step == 20 {
				seq += replicate.EpochJump
			}
			n := 1 + random.IntN(12)
			commit := make([]entry, n)
			for i := range commit {
				seq++
				commit[i] = entry{seq: seq, wire: make([]byte, random.IntN(200)), chain: artifact.HashBytes([]byte{byte(seq), byte(seq >> 8), byte(seq >> 32)})}
			}
			for i := range commit {
				commit[i].commit = seq
			}
			cut := random.IntN(n) // it comes in two reads
			if cut > 0 {
				r.add(commit[:cut])
			}
			checkRing(t, r, log)
			r.add(commit[cut:])
			log = append(log, commit...)
			checkRing(t, r, log)
		}
	}
}

func checkRing(t *testing.T, r *ring, log []entry) {
	t.Helper()
	for i := -1; i < len(log); i++ {
		var at artifact.Seq
		if i >= 0 {
			at = log[i].seq
		}
		got, head, _, ok := r.after(at)
		if n := len(log); n > 0 && head != log[n-1].seq {
			t.Fatalf("head = %d, want %d", head, log[n-1].seq)
		}
		if !ok {
			if i == len(log)-1 && r.base.seq <= at {
				t.Fatalf("the ring from %d does not know its head, %d", r.base.seq, at)
			}
			continue
		}
		want := log[i+1:]
		if len(got) != len(want) {
			t.Fatalf("after %d: %d entries of a ring from %d, want %d", at, len(got), r.base.seq, len(want))
		}
		for j := range got {
			if got[j].seq != want[j].seq {
				t.Fatalf("after %d: seq %d, want %d", at, got[j].seq, want[j].seq)
			}
		}
		if chain, known := r.chainAt(at); i >= 0 && (!known || chain != log[i].chain) {
			t.Fatalf("chain at %d = %s, %v", at, chain, known)
		}
	}
	bytes := 0
	for _, e := range r.entries {
		bytes += len(e.wire) + entryOverhead
	}
	if bytes != r.bytes || bytes > r.limit && len(r.entries) > 1 {
		t.Fatalf("%d bytes in %d entries, counted %d of %d", bytes, len(r.entries), r.bytes, r.limit)
	}
}

// BenchmarkRingAdd adds single rows to a ring that is full.
func BenchmarkRingAdd(b *testing.B) {
	r := &ring{limit: 16 << 20, changed: make(chan struct{})}
	r.begin(chainCursor{}, 0)
	wire := make([]byte, 512)
	var seq artifact.Seq
	b.ReportAllocs()
	for b.Loop() {
		seq++
		r.add([]entry{{seq: seq, commit: seq, wire: wire}})
	}
}
