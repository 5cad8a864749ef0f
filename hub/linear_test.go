package hub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// A version is what an artifact is at one time.
type version struct {
	revision int
	hash     artifact.Hash
}

// An attempt is a call of the history: a read, or an update from a base to a hash.
type attempt struct {
	artifact int
	read     bool
	base     artifact.Hash
}

// A result is what was answered: the version read or written, or the current one
// that an update lost to.
type result struct {
	version
	conflict bool
}

// register is the model that each artifact is to follow: it has one version, and
// an update replaces exactly the one that it is based on.
func register(initial []version) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, len(initial))
			for _, op := range history {
				i := op.Input.(attempt).artifact
				parts[i] = append(parts[i], op)
			}
			return parts
		},
		Init: func() any { return version{} },
		Step: func(state, input, output any) (bool, any) {
			now, in, out := state.(version), input.(attempt), output.(result)
			if now.revision == 0 {
				now = initial[in.artifact]
			}
			switch {
			case in.read, out.conflict:
				return out.version == now && (in.read || in.base != now.hash), now
			default:
				return in.base == now.hash && out.revision == now.revision+1, out.version
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// TestLinearizable checks that what concurrent writers and readers of some
// artifacts were answered is what a single one could have been answered, one call
// after the other, while the hub is killed twice.
func TestLinearizable(t *testing.T) {
	url := pgtest.URL(t, initHub)
	pool, err := hub.OpenPool(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := newHubOn(t, pool)
	const writers, artifacts = 8, 3
	refs := make([]artifact.Ref, artifacts)
	initial := make([]version, artifacts)
	for i := range refs {
		made := f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
		refs[i], initial[i] = made.Ref.Current(), version{1, made.ContentHash}
	}
	h := &hammer{token: f.token(t, "ada", verb.Contributor), revisions: make(map[string]int)}
	c := startChild(t, url)
	defer func() { c.kill() }()
	h.url.Store(&c.url)

	var mu sync.Mutex
	var history []porcupine.Operation
	begun := time.Now()
	var writes, conflicts atomic.Int64
	run := func(ctx context.Context, writer int, stop <-chan struct{}) error {
		random := rand.New(rand.NewPCG(uint64(writer), 1))
		known := append([]version{}, initial...)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return nil
			default:
			}
			in := attempt{artifact: random.IntN(artifacts), read: random.IntN(4) == 0}
			in.base = known[in.artifact].hash
			called := time.Since(begun).Nanoseconds()
			var out result
			if in.read {
				got, err := call(ctx, h, verb.Get, verb.GetRequest{Ref: refs[in.artifact]})
				if err != nil {
					return err
				}
				out.version = version{got.Artifact.Revision, got.Artifact.ContentHash}
			} else {
				done, err := call(ctx, h, verb.Update, verb.UpdateRequest{
					Ref: refs[in.artifact].String(), BaseContentHash: in.base,
					Content: content(map[string]any{"statement": fmt.Sprint(writer, "-", n)}), WriteOptions: keyed(),
				})
				e := artifact.AsError(err)
				switch {
				case err == nil:
					out.version = version{done.Revision, done.ContentHash}
					writes.Add(1)
				case e.Code == artifact.CodeVersionConflict:
					out = result{version{e.Conflict.Current.Revision, e.Conflict.Current.Ref.Hash}, true}
					conflicts.Add(1)
				default:
					return err
				}
			}
			known[in.artifact] = out.version
			mu.Lock()
			history = append(history, porcupine.Operation{ClientId: writer, Input: in, Call: called, Output: out, Return: time.Since(begun).Nanoseconds()})
			mu.Unlock()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	g := new(errgroup.Group)
	for i := range writers {
		g.Go(func() error { return run(ctx, i, stop) })
	}
	const between = 150 // writes before each kill, and after the last
	for kill := range int64(3) {
		for writes.Load() < (kill+1)*between && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if kill < 2 {
			c.kill()
			c = startChild(t, url)
			h.url.Store(&c.url)
		}
	}
	close(stop)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d calls: %d writes, %d conflicts", len(history), writes.Load(), conflicts.Load())
	if conflicts.Load() == 0 {
		t.Error("no update lost to another: the test tries nothing")
	}
	if got := porcupine.CheckOperationsTimeout(register(initial), history, time.Minute); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", got)
	}
}
