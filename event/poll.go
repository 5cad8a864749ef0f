package event

import (
	"context"

	"github.com/scidex-ai/substrate/verb"
)

// A Poller answers the verb poll from a source.
type Poller struct {
	Source Source
	// Durable answers a poll of a consumer.
	Durable func(context.Context, verb.PollRequest) (verb.PollResult, error)
	// Elsewhere, when not nil, tells whether a poll is answered elsewhere, by Durable
	// too.
	Elsewhere func(context.Context, verb.PollRequest) bool
}

// Poll answers the verb of that name.
func (p Poller) Poll(ctx context.Context, in verb.PollRequest) (out verb.PollResult, err error) {
	size, err := in.Size()
	if err != nil {
		return out, err
	}
	if err := in.CheckConsumer(); err != nil {
		return out, err
	}
	f, err := NewFilter(in.Types, in.Filter)
	if err != nil {
		return out, err
	}
	if in.ConsumerID != "" {
		if c, err := verb.CallerFrom(ctx); err != nil || c.Anonymous {
			return out, verb.Unauthenticated("a consumer needs a token")
		}
	}
	if in.ConsumerID != "" || p.Elsewhere != nil && p.Elsewhere(ctx, in) {
		return p.Durable(ctx, in)
	}
	reader, err := p.Source.Read(ctx, in.Since, f, size)
	if err != nil {
		return out, err
	}
	return ReadPage(ctx, reader)
}

// ReadPage returns the next page in which there is something, or the one at which a
// reader has caught up.
func ReadPage(ctx context.Context, reader Reader) (out verb.PollResult, err error) {
	out.Events = []verb.Event{}
	for {
		page, err := reader.Next(ctx)
		if err != nil {
			return verb.PollResult{}, err
		}
		out.Cursor, out.CaughtUp, out.AsOf = page.Cursor, page.CaughtUp, page.AsOf
		for i := range page.Events {
			out.Events = append(out.Events, verb.EventOf(&page.Events[i]))
		}
		// A page may be empty though more is to come: it looked at many events.
		if page.CaughtUp || len(page.Events) > 0 {
			return out, nil
		}
	}
}
