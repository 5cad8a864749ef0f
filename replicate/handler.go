package replicate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A Log is what a [Handler] serves: the hub's.
type Log interface {
	// Open returns a reader of the public rows of these scopes after a position,
	// and what to say of the log. It refuses a position that it cannot resume
	// with an [*artifact.Error] whose reason is cursor_expired, cursor_ahead or
	// cursor_diverged.
	Open(ctx context.Context, from Position, scopes []string) (Reader, Hello, error)
}

// A Reader reads a log forward.
type Reader interface {
	// Next returns the next page, or nil when quiet fires before there is one. It
	// may be one that others are sent too. A page without rows moves the cursor.
	Next(ctx context.Context, quiet <-chan time.Time) (*Page, error)
	// Beat returns an empty page at the reader's position, with the log's head.
	Beat() *Page
}

// A Handler serves a log as GET /feed?cursor=[EPOCH:]SEQ&chain=HASH: a stream of
// frames, one a line, in zstd when the client accepts it.
type Handler struct {
	Log Log
	// Scopes returns the scopes that a request's caller may follow.
	Scopes func(*http.Request) ([]string, error)
	// Fail answers a request with an error.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Done ends all streams when it is closed, so that the server can stop.
	Done   <-chan struct{}
	Logger *slog.Logger
	// WriteWait is how long a follower may accept nothing before it is dropped.
	// The default is 30 seconds.
	WriteWait time.Duration
	// Beat is how often a quiet stream beats. The default is BeatInterval.
	Beat time.Duration
}

// untilDone returns a context that ends when done is closed too; done may be nil.
func untilDone(ctx context.Context, done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := untilDone(req.Context(), h.Done)
	defer cancel()
	from, err := parsePosition(req)
	if err != nil {
		h.Fail(w, req, err)
		return
	}
	scopes, err := h.Scopes(req)
	if err != nil {
		h.Fail(w, req, err)
		return
	}
	reader, hello, err := h.Log.Open(ctx, from, scopes)
	if err != nil {
		h.Fail(w, req, err)
		return
	}
	// net/http ends the request's context when a write fails, so that alone does
	// not tell a follower that hung up from one that stopped reading.
	if err := h.stream(ctx, w, req, reader, hello); err != nil && (ctx.Err() == nil || errors.Is(err, os.ErrDeadlineExceeded)) {
		h.Logger.WarnContext(ctx, "feed follower dropped", "remote", req.RemoteAddr, "err", err)
	}
}

func parsePosition(req *http.Request) (p Position, err error) {
	q := req.URL.Query()
	p.HubID = q.Get("hub")
	if c := q.Get("cursor"); c != "" {
		if p.Epoch, p.Seq, err = ParseToken(c); err != nil {
			return p, err
		}
	}
	if c := q.Get("chain"); c != "" {
		if p.Chain, err = artifact.ParseHash(c); err != nil {
			e := *artifact.AsError(err)
			e.Reason, e.Problems[0].Path = artifact.ReasonInvalidCursor, "/chain"
			return p, &e
		}
	}
	return p, nil
}

func (h *Handler) stream(ctx context.Context, w http.ResponseWriter, req *http.Request, reader Reader, hello Hello) error {
	out := newSender(w, req, h.WriteWait)
	if err := out.value(&Frame{Type: FrameHello, Hello: &hello, To: reader.Beat().From, Head: hello.Head}); err != nil {
		return err
	}
	interval := cmp.Or(h.Beat, BeatInterval)
	quiet := time.NewTimer(interval)
	defer quiet.Stop()
	for {
		page, err := reader.Next(ctx, quiet.C)
		if err != nil {
			return h.end(ctx, out, err)
		}
		if page == nil { // quiet has fired; it is not set anew with each page
			left := interval - time.Since(out.sent)
			if left > 0 {
				quiet.Reset(left)
				continue
			}
			quiet.Reset(interval)
			page = reader.Beat()
		}
		if err := out.page(page); err != nil {
			return err
		}
	}
}

// end tells the follower why its stream ends, if it still listens.
func (h *Handler) end(ctx context.Context, out *sender, cause error) error {
	reason := "the hub stops"
	if e, ok := errors.AsType[*artifact.Error](context.Cause(ctx)); ok {
		reason = e.Message
	} else if ctx.Err() == nil {
		reason = "the feed failed"
		if e, ok := errors.AsType[*artifact.Error](cause); ok {
			reason = e.Message
		}
	}
	if err := out.value(&Frame{Type: FrameReset, Reason: reason}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx has ended, which the follower was told
	}
	return cause
}
