package verb

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBucketsAreBounded counts what only memory shows.
func TestBucketsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[int](ClassUnauthenticated, Rate{PerSecond: 1, Burst: 10}, StandardLimits.Unauthenticated)
		for range 10 {
			b.take(-1, 1)
		}
		for i := range maxBuckets + 1000 {
			b.take(i, 1)
		}
		if n := len(b.byKey); n != maxBuckets {
			t.Errorf("%d buckets, want %d", n, maxBuckets)
		}
		if b.take(-1, 1).ok {
			t.Error("newcomers made a caller's count be forgotten")
		}
		if b.take(maxBuckets+2000, 1).ok {
			t.Error("a newcomer beyond the bound has a bucket of its own")
		}
		if !b.take(1, 1).ok {
			t.Error("newcomers use up what others have")
		}
		time.Sleep(5 * time.Second)
		if b.take(-2, 1); len(b.byKey) != 2 {
			t.Errorf("%d buckets after the others are full again, want 2", len(b.byKey))
		}
	})
}
