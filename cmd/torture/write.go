package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const writers = 6

// An ack is a write that the product said it had done.
type ack struct {
	kind     string // artifact, revision, link or signal
	id       string // of the artifact's type, the link or the signal
	revision int
	hash     artifact.Hash
}

// A load is agents that write until they are stopped.
type load struct {
	ended   context.CancelFunc // no new write is begun
	group   sync.WaitGroup
	mu      sync.Mutex
	acks    []ack   // guarded by mu
	refusal []error // guarded by mu
}

// write starts agents. Each write has a key and is sent again, to either hub, until
// its outcome is known.
func (c *cluster) write(ctx context.Context, dice *rand.Rand) *load {
	begun, ended := context.WithCancel(ctx)
	l := &load{ended: ended}
	for range writers {
		w := &writer{cluster: c, load: l, dice: rand.New(rand.NewPCG(dice.Uint64(), 1))} //nolint:gosec // chance that can be had again
		l.group.Go(func() {
			for begun.Err() == nil {
				if err := w.step(ctx); err != nil {
					l.mu.Lock()
					l.refusal = append(l.refusal, err)
					l.mu.Unlock()
					return
				}
			}
		})
	}
	return l
}

// stop lets each agent end what it has begun and returns all that was acknowledged.
func (l *load) stop(ctx context.Context) ([]ack, error) {
	l.ended()
	done := make(chan struct{})
	go func() {
		l.group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(settle):
		return nil, errors.New("writers got no answer for minutes")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return l.acks, errors.Join(l.refusal...)
}

type writer struct {
	cluster *cluster
	load    *load
	dice    *rand.Rand
	own     []verb.WriteResult
}

var client = &http.Client{Timeout: 20 * time.Second}

// step makes one write.
func (w *writer) step(ctx context.Context) error {
	key := verb.WriteOptions{IdempotencyKey: uuid.NewString()}
	body := json.RawMessage(fmt.Sprintf(`{"statement":"Amyloid and tau, as of %s"}`, key.IdempotencyKey))
	if len(w.own) < 2 {
		return w.create(ctx, key, body)
	}
	last := &w.own[w.dice.IntN(len(w.own))]
	switch w.dice.IntN(4) {
	case 0:
		return w.create(ctx, key, body)
	case 1:
		r, err := certain(ctx, w, verb.Update, verb.UpdateRequest{Ref: last.Ref.Current().String(), BaseContentHash: last.ContentHash, Content: body, WriteOptions: key})
		if err == nil {
			*last = r
			w.acked(ack{kind: "revision", id: r.Ref.ID, revision: r.Revision, hash: r.ContentHash})
		}
		return err
	case 2:
		to := w.own[w.dice.IntN(len(w.own))]
		if to.Ref.ID == last.Ref.ID {
			return nil
		}
		r, err := certain(ctx, w, verb.Link, verb.LinkRequest{
			From: last.Ref.Current().String(), LinkSpec: verb.LinkSpec{Predicate: "supports", To: to.Ref.Current().String()}, WriteOptions: key,
		})
		if err == nil {
			w.acked(ack{kind: "link", id: strings.TrimPrefix(r.Ref, "kg_edge:")})
		}
		return err
	default:
		r, err := certain(ctx, w, verb.Signal, verb.SignalRequest{Ref: last.Ref.Current().String(), Kind: "vote", Value: json.Number("1"), WriteOptions: key})
		if err == nil {
			w.acked(ack{kind: "signal", id: strings.TrimPrefix(r.Ref, "signal:")})
		}
		return err
	}
}

func (w *writer) create(ctx context.Context, key verb.WriteOptions, body json.RawMessage) error {
	r, err := certain(ctx, w, verb.Create, verb.CreateRequest{Type: "hypothesis", Title: "Of " + key.IdempotencyKey, Content: body, WriteOptions: key})
	if err == nil {
		w.own = append(w.own, r)
		w.acked(ack{kind: "artifact", id: r.Ref.ID, revision: r.Revision, hash: r.ContentHash})
	}
	return err
}

func (w *writer) acked(a ack) {
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	w.load.acks = append(w.load.acks, a)
}

// certain sends a request until it is known what became of it.
func certain[In, Out any](ctx context.Context, w *writer, v verb.Verb[In, Out], in In) (out Out, err error) {
	deadline := time.Now().Add(settle)
	for {
		hub := w.cluster.urls[w.dice.IntN(len(w.cluster.urls))]
		out, err = v.Call(ctx, &verb.Client{URL: hub, Token: w.cluster.token, HTTP: client}, in)
		e, ours := errors.AsType[*artifact.Error](err)
		switch {
		case err == nil:
			return out, nil
		case ctx.Err() != nil:
			return out, ctx.Err()
		case ours && !e.Retryable && e.Code != artifact.CodeUnavailable:
			return out, fmt.Errorf("%s was refused: %w", v.Name, err)
		case time.Now().After(deadline):
			return out, fmt.Errorf("%s has no certain outcome after %s: %w", v.Name, settle, err)
		}
		pause(ctx, time.Duration(20+w.dice.IntN(200))*time.Millisecond)
	}
}
