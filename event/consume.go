package event

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// advanceEvery is how often a cursor is moved while events pass.
const advanceEvery = time.Second

// ErrLast is returned by who is passed an event that it is done with, and wants no
// more.
var ErrLast = errors.New("this was the last event wanted")

// Consume passes the events of a durable consumer to each, as [Client.Follow] does,
// and notes those as done with for which each returned nil: about every second, and
// at the end. What was passed since then comes again if the program is killed.
func (c *Client) Consume(ctx context.Context, in verb.SubscribeRequest, each func(verb.Event) error) error {
	in.Durable = true
	a := &advancer{client: &verb.Client{URL: c.URL, Token: c.Token, HTTP: c.HTTP}}
	own := *c
	own.Began = func(p verb.ConsumerPlace) {
		a.began(p)
		if c.Began != nil {
			c.Began(p)
		}
	}
	moving, stop := context.WithCancel(ctx)
	var moves sync.WaitGroup
	moves.Go(func() { a.run(moving) })
	err := own.Follow(ctx, in, func(e verb.Event) error {
		err := each(e)
		if err == nil || errors.Is(err, ErrLast) {
			a.did(e.ID)
		}
		return err
	})
	stop()
	moves.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if last := a.move(end); !artifact.IsCode(err, artifact.CodeVersionConflict) {
		err = errors.Join(err, last)
	}
	return err
}

// An advancer moves a consumer's cursor after what was dealt with.
type advancer struct {
	client *verb.Client

	mu    sync.Mutex
	place verb.ConsumerPlace // guarded by mu; of the stream that is under way
	done  artifact.Seq       // guarded by mu; the last that was dealt with
	dirty bool               // guarded by mu; not noted yet
}

func (a *advancer) began(p verb.ConsumerPlace) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.place, a.done = p, max(a.done, p.Cursor)
}

func (a *advancer) did(id artifact.Seq) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done, a.dirty = max(a.done, id), true
}

func (a *advancer) run(ctx context.Context) {
	tick := time.NewTicker(advanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = a.move(ctx) // what fails is tried again, and the stream tells of what lasts
		}
	}
}

// move notes what was dealt with, if something was.
func (a *advancer) move(ctx context.Context) error {
	a.mu.Lock()
	p, done, dirty := a.place, a.done, a.dirty
	a.dirty = false
	a.mu.Unlock()
	if !dirty {
		return nil
	}
	_, err := verb.ConsumersAdvance.Call(ctx, a.client, verb.ConsumersAdvanceRequest{ConsumerID: p.ConsumerID, Generation: p.Generation, Epoch: p.Epoch, EventID: done})
	if err != nil {
		a.mu.Lock()
		a.dirty = true
		a.mu.Unlock()
	}
	return err
}
