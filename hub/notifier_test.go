package hub

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// TestNotifier checks that a commit is told of at once, those soon after it
// together and none of them not, and that it is tried again what fails.
func TestNotifier(t *testing.T) {
	type told struct {
		seq artifact.Seq
		at  time.Duration
	}
	var greetings []string
	alone := false
	run := func(t *testing.T, fails int, writes func(n *notifier)) (sent []told) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			n := newNotifier(slog.New(slog.DiscardHandler), func(_ context.Context, payload string) error {
				if fails > 0 {
					fails--
					return errors.New("away")
				}
				seq, err := strconv.ParseInt(payload, 10, 64)
				if err != nil {
					greetings = append(greetings, payload)
					return nil //nolint:nilerr // it is a greeting
				}
				sent = append(sent, told{artifact.Seq(seq), time.Since(begun)})
				return nil
			})
			if !alone {
				n.met(greetHere + "another")
			}
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- n.run(ctx) }()
			synctest.Wait()
			writes(n)
			time.Sleep(time.Minute)
			cancel()
			if err := <-ran; err != nil {
				t.Error(err)
			}
		})
		return sent
	}
	t.Run("one", func(t *testing.T) {
		if got := run(t, 0, func(n *notifier) { n.tell(7) }); len(got) != 1 || got[0] != (told{7, 0}) {
			t.Errorf("told %v, want 7 at once", got)
		}
	})
	t.Run("while nobody listens, none", func(t *testing.T) {
		alone = true
		defer func() { alone = false }()
		got := run(t, 0, func(n *notifier) {
			n.tell(7)
			synctest.Wait()
			n.met(greetNew + n.name) // its own
			synctest.Wait()
			time.Sleep(time.Second)
			n.met(greetNew + "another")
			synctest.Wait()
			time.Sleep(greetFor + time.Second)
			n.tell(8)
		})
		if len(got) != 1 || got[0] != (told{7, time.Second}) {
			t.Errorf("told %v, want 7 when another came to listen", got)
		}
		if len(greetings) != 1 || !strings.HasPrefix(greetings[0], greetHere) {
			t.Errorf("greeted %q, want one answer", greetings)
		}
	})
	t.Run("many", func(t *testing.T) {
		got := run(t, 0, func(n *notifier) {
			for seq := range artifact.Seq(101) {
				n.tell(seq)
				n.tell(seq / 2) // of a commit that is told of late
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
		})
		if len(got) < 48 || len(got) > 52 || got[len(got)-1].seq != 100 {
			t.Errorf("told %v, want some 50 times, 100 last", got)
		}
		for i := range got[1:] {
			if pause := got[i+1].at - got[i].at; pause < notifyEvery || got[i+1].seq <= got[i].seq {
				t.Errorf("told %v %v after %v", got[i+1], pause, got[i])
			}
		}
	})
	t.Run("what fails at first", func(t *testing.T) {
		got := run(t, 3, func(n *notifier) { n.tell(7) })
		if len(got) != 1 || got[0].seq != 7 || got[0].at != 700*time.Millisecond {
			t.Errorf("told %v, want 7 at the fourth try", got)
		}
	})
}
