package event

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A Session is a stream of a durable consumer. There is one at a time: the next one
// ends it.
type Session struct {
	Reader Reader
	Place  verb.ConsumerPlace
	Ended  <-chan struct{} // closed when the session is to end
	Why    func() error    // why, once Ended is closed
	Close  func()          // to be called when the stream is over
}

// consumerFrame tells where a durable stream begins, as an event of that name: what
// EventSource cannot read of headers.
func consumerFrame(p *verb.ConsumerPlace) ([]byte, error) {
	raw, err := json.Marshal(p)
	return fmt.Appendf(nil, "event: consumer\ndata: %s\n\n", raw), err
}

// A Redelivery is a reader that gives some events before those of another, and
// leaves some out.
type Redelivery struct {
	Reader

	First []artifact.Event      // before all others
	Dead  map[artifact.Seq]bool // are left out
}

// now is the channel of what has happened already.
var now = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Changed implements [Reader].
func (r *Redelivery) Changed() <-chan struct{} {
	if len(r.First) > 0 {
		return now
	}
	return r.Reader.Changed()
}

// Next implements [Reader]. A page of what comes again has the cursor of before.
func (r *Redelivery) Next(ctx context.Context) (Page, error) {
	if len(r.First) > 0 {
		page := Page{Events: r.First, Cursor: r.Cursor(), AsOf: r.Cursor()}
		r.First = nil
		return page, nil
	}
	page, err := r.Reader.Next(ctx)
	if err != nil || len(r.Dead) == 0 {
		return page, err
	}
	alive := page.Events[:0:0]
	for _, e := range page.Events {
		if !r.Dead[e.ID] {
			alive = append(alive, e)
		}
	}
	page.Events = alive
	return page, nil
}
