package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A Source has events: a hub's log, or a node's replica of it.
type Source interface {
	// Read returns a reader of the events after a cursor, or from now on when that
	// is nil. A cursor that can no longer be followed is refused.
	Read(ctx context.Context, after *artifact.Seq, f *Filter, size int) (Reader, error)
}

// A Reader goes through the events that its caller may see and its filter lets
// pass. Its methods are for one goroutine at a time.
type Reader interface {
	// Changed returns a channel that is closed once something has happened after
	// the cursor, whatever it is.
	Changed() <-chan struct{}
	// Next returns the next page without waiting: empty when nothing happened, or
	// nothing that passes.
	Next(ctx context.Context) (Page, error)
	// Cursor is the place after which the next page begins.
	Cursor() artifact.Seq
}

// A Joiner is a reader that may wait together with those that have its filter: it is
// not told then of what does not pass.
type Joiner interface {
	Join() (leave func())
}

// A Page is what is new after a reader's cursor.
type Page struct {
	Events   []artifact.Event
	Cursor   artifact.Seq // resume after this
	CaughtUp bool         // nothing more is known after it
	AsOf     artifact.Seq // last that was looked at, or would be
}

const (
	keepAlive    = 15 * time.Second // after which a stream that has nothing to tell says so
	writeTimeout = 2 * time.Minute  // for what a subscriber does not read, until it is cut off; it resumes
)

// StreamPage is how many events a stream reads at a time, at most.
const StreamPage = 256

// MaxStreams is how many streams a server has at once.
const MaxStreams = 20_000

// Stream serves [verb.SubscribePath]: GET with the request's members as query
// parameters, which EventSource can, or POST with them as JSON.
type Stream struct {
	Source Source
	Log    *slog.Logger
	Access func() <-chan struct{} // closed when something of who may do what has changed
	Done   <-chan struct{}        // closed when the server stops; may be nil

	// Durable begins the stream of a consumer, whose filter and cursor are kept.
	Durable func(context.Context, verb.SubscribeRequest) (*Session, error)
	// Pass, when not nil, serves a subscription elsewhere, and is false for one that
	// is served here. Its error is that of a stream which has not begun.
	Pass func(http.ResponseWriter, *http.Request, verb.SubscribeRequest) (bool, error)

	open atomic.Int64
}

// Open returns how many streams there are.
func (s *Stream) Open() int64 { return s.open.Load() }

// ServeHTTP implements [http.Handler]. The caller is in the request's context. What
// begins a stream has returned while it waits: thousands of them are deep in little
// else than their stacks.
func (s *Stream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	t, session, err := s.start(w, req)
	if err != nil {
		verb.WriteError(req.Context(), w, s.Log, err)
	} else if t != nil {
		s.tell(req.Context(), t, session)
	}
	if session != nil {
		s.open.Add(-1)
		session.Close()
	}
}

// start begins a stream, unless it is passed on. Its error is what is wrong before
// that. A session is to be closed.
func (s *Stream) start(w http.ResponseWriter, req *http.Request) (*teller, *Session, error) {
	ctx := req.Context()
	if err := MayStream(ctx); err != nil {
		return nil, nil, err
	}
	in, err := subscription(req)
	if err != nil {
		return nil, nil, err
	}
	if err := in.CheckConsumer(); err != nil {
		return nil, nil, err
	}
	f, err := NewFilter(in.Types, in.Filter)
	if err != nil {
		return nil, nil, err
	}
	session := &Session{Close: func() {}}
	if s.open.Add(1) > MaxStreams {
		return nil, session, &artifact.Error{
			Code: artifact.CodeUnavailable, Reason: artifact.ReasonBusy, Retryable: true, RetryAfterMS: 5000,
			Message: fmt.Sprintf("the server has %d streams; poll, or come later", MaxStreams),
		}
	}
	if s.Pass != nil {
		if passed, err := s.Pass(w, req, in); passed || err != nil {
			return nil, session, err
		}
	}
	if in.Durable {
		durable, err := s.Durable(ctx, in)
		if err != nil {
			return nil, session, err
		}
		session = durable
	} else if session.Reader, err = s.Source.Read(ctx, in.Since, f, StreamPage); err != nil {
		return nil, session, err
	} else if j, ok := session.Reader.(Joiner); ok {
		session.Close = j.Join()
	}
	var first []byte
	if in.Durable {
		if first, err = consumerFrame(&session.Place); err != nil {
			return nil, session, err
		}
	}
	t := begin(w)
	if !t.sent(fmt.Appendf(first, "retry: 1000\nid: %d\n\n", session.Reader.Cursor())) {
		return nil, session, nil
	}
	clear(w.Header()) // they were sent
	return t, session, nil
}

// begin sends a stream's header.
func begin(w http.ResponseWriter) *teller {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
	t := &teller{w: w, conn: http.NewResponseController(w)}
	_ = t.conn.SetReadDeadline(time.Time{})
	return t
}

// MayStream returns why the caller in ctx may have no stream: it takes a token, which
// may end or be revoked while the stream lasts.
func MayStream(ctx context.Context) error {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return err
	}
	if c.Anonymous {
		return verb.Unauthenticated("subscribing needs a token")
	}
	if err := c.Valid(); err != nil {
		return err
	}
	return c.NeedSomewhere("subscribing", verb.Viewer)
}

// subscription reads what is asked for. Last-Event-ID is where a stream broke off,
// and so wins over since; over a consumer's cursor it does not, which tells what was
// dealt with.
func subscription(req *http.Request) (in verb.SubscribeRequest, err error) {
	switch req.Method {
	case http.MethodGet:
		in, err = verb.SubscribeQuery(req.URL.Query())
	case http.MethodPost:
		in, err = verb.SubscribeBody(req)
	default:
		err = &artifact.Error{Code: artifact.CodeValidationFailed, Reason: artifact.ReasonMethodNotAllowed, Message: "subscribe by GET or POST"}
	}
	if err != nil {
		return in, err
	}
	if last := req.Header.Get("Last-Event-ID"); last != "" && !in.Durable {
		seq, err := strconv.ParseInt(last, 10, 64)
		if err != nil || seq < 0 {
			return in, artifact.Invalid(artifact.Problem{Path: "/since", Constraint: "cursor", Message: "Last-Event-ID is the id of an event", Value: artifact.Received(last)})
		}
		at := artifact.Seq(seq)
		in.Since = &at
	}
	return in, nil
}

// tell streams until the client is gone, or may no longer read.
func (s *Stream) tell(ctx context.Context, t *teller, session *Session) {
	quiet := time.NewTimer(keepAlive)
	defer quiet.Stop()
	for {
		access := s.Access()
		if err := MayStream(ctx); err != nil {
			t.end(err)
			return
		}
		var told bool
		select {
		case <-ctx.Done():
			return
		case <-s.Done:
			t.end(errStopping)
			return
		case <-session.Ended:
			t.end(session.Why())
			return
		case <-access:
			continue
		case <-quiet.C:
			told = t.nothing(session.Reader.Cursor())
		case <-session.Reader.Changed():
			told = t.page(ctx, session.Reader)
		}
		if t.over {
			return
		}
		if told {
			quiet.Reset(keepAlive)
		}
	}
}

// nothing says that nothing happened. An id alone moves EventSource's, past what the
// filter left out.
func (t *teller) nothing(at artifact.Seq) bool {
	return t.sent(fmt.Appendf(nil, ": nothing happened\nid: %d\n\n", at))
}

// page sends the next page, and reports whether there was anything in it.
func (t *teller) page(ctx context.Context, reader Reader) bool {
	page, err := reader.Next(ctx)
	if err != nil {
		t.end(err)
		return false
	}
	if len(page.Events) == 0 {
		return false
	}
	if len(page.Events) == 1 {
		return t.sent(frame(&page.Events[0]))
	}
	var all []byte // of one burst; most of the time a stream is quiet
	for i := range page.Events {
		all = append(all, frame(&page.Events[i])...)
	}
	return t.sent(all)
}

// sent sends something, and ends the stream when nobody listens.
func (t *teller) sent(said []byte) bool {
	t.over = t.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil
	if !t.over {
		_, err := t.w.Write(said) //nolint:gosec // JSON, and no page
		t.over = err != nil || t.conn.Flush() != nil
	}
	return !t.over
}

var errStopping = &artifact.Error{
	Code: artifact.CodeUnavailable, Reason: artifact.ReasonBusy, Retryable: true, RetryAfterMS: 1000, Message: "the server stops; subscribe again with your last event's id",
}

// frames keeps the latest events as they are sent.
var frames latest[[]byte]

// frame returns an event as it is sent, to be read only.
func frame(e *artifact.Event) []byte {
	return frames.of(e, func() []byte {
		raw, err := json.Marshal(verb.EventOf(e))
		if err != nil { // it was read from JSON
			return nil
		}
		return slices.Concat(fmt.Appendf(nil, "id: %d\ndata: ", e.ID), raw, []byte("\n\n"))
	})
}

// A teller writes a stream.
type teller struct {
	w    http.ResponseWriter
	conn *http.ResponseController
	over bool // the stream has ended
}

// end says why the stream ends, as an event of that name: EventSource passes it to
// whoever listens for "end", and then comes again.
func (t *teller) end(err error) {
	if !errors.Is(err, context.Canceled) { // or the client is gone
		if raw, err := json.Marshal(artifact.AsError(err)); err == nil {
			t.sent(slices.Concat([]byte("event: "+endName+"\ndata: "), raw, []byte("\n\n")))
		}
	}
	t.over = true
}
