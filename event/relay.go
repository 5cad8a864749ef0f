package event

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A Relay passes the stream of another server on.
type Relay struct {
	Began func(verb.ConsumerPlace)            // told where a durable stream begins
	Ready func(context.Context, artifact.Seq) // waits, within a bound, until what an event tells of can be read here
	Lost  *artifact.Error                     // what the client is told when the other server falls silent
	Done  <-chan struct{}                     // closed when the server stops; may be nil
}

// Serve passes a stream on until it ends, or the client is gone.
func (r *Relay) Serve(ctx context.Context, w http.ResponseWriter, from io.ReadCloser) {
	t := begin(w)
	over := make(chan struct{})
	watched := make(chan struct{})
	silent := time.AfterFunc(silence, func() { _ = from.Close() })
	go func() { // a read of a stream waits for nothing else
		defer close(watched)
		select {
		case <-ctx.Done():
		case <-r.Done:
		case <-over:
		}
		_ = from.Close()
	}()
	defer func() {
		close(over)
		silent.Stop()
		<-watched
	}()
	lines := bufio.NewReader(from)
	var f received
	var said []byte // of the frame that comes
	for {
		line, err := lines.ReadSlice('\n')
		for err == bufio.ErrBufferFull { //nolint:errorlint // it is returned as it is
			said = append(said, line...)
			f.add(line)
			line, err = lines.ReadSlice('\n')
		}
		if err != nil {
			break
		}
		silent.Reset(silence)
		said = append(said, line...)
		if len(line) > 1 {
			f.add(line[:len(line)-1])
			continue
		}
		r.meet(ctx, &f)
		sent := t.sent(said)
		if said = said[:0]; cap(said) > 64<<10 {
			said = nil // one burst; most of the time a stream is quiet
		}
		if !sent {
			return
		}
		if f.name == endName {
			return
		}
		f = received{}
	}
	select {
	case <-r.Done:
		t.end(errStopping)
	default:
		if ctx.Err() == nil {
			t.end(r.Lost)
		}
	}
}

// meet does what is to be done before a frame is passed on.
func (r *Relay) meet(ctx context.Context, f *received) {
	switch {
	case f.name == "consumer":
		var p verb.ConsumerPlace
		if json.Unmarshal(f.data, &p) == nil && r.Began != nil {
			r.Began(p)
		}
	case f.name == "" && f.data != nil && r.Ready != nil:
		if seq, err := strconv.ParseInt(f.id, 10, 64); err == nil {
			r.Ready(ctx, artifact.Seq(seq))
		}
	}
}
