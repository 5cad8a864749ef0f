package replicate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A FillRequest asks for what is there now, for those who begin to copy.
type FillRequest struct {
	HubID string // the hub that it must be; "" for any
	Epoch int    // that it must be in; 0 for any

	// UpTo is where the feed is to take over: events after it are left out. 0 is
	// the hub's head, which the hello then names.
	UpTo artifact.Seq

	// Scopes are those wanted; nil for all that the caller may follow.
	Scopes []string

	From Place // where to go on
}

// A Filler is what a [FillHandler] serves: the hub's state.
type Filler interface {
	// OpenFill checks a request and says what the hub is. It refuses a place in
	// the log that could not be followed from, as [Log.Open] does.
	OpenFill(ctx context.Context, r FillRequest, scopes []string) (FillHello, error)
	// Fill returns a page: what there is now after a place, with events up to a
	// seq. It may wait for its turn, and holds no lock and no snapshot
	// once it has returned.
	Fill(ctx context.Context, from Place, upTo artifact.Seq, scopes []string) (FillPage, error)
}

// A FillHandler serves GET /feed/backfill?hub=ID&epoch=N&upto=SEQ&scope=…&kind=K&after=[…]:
// a stream of frames, one a line, in zstd when the client accepts it. Between two
// pages nothing is held at the hub, so a slow reader costs it nothing.
type FillHandler struct {
	Filler Filler
	// Scopes returns the scopes that a request's caller may follow.
	Scopes func(*http.Request) ([]string, error)
	// Fail answers a request with an error.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Done ends all streams when it is closed, so that the server can stop.
	Done   <-chan struct{}
	Logger *slog.Logger
	// WriteWait is how long a reader may accept nothing before it is dropped. The
	// default is 30 seconds.
	WriteWait time.Duration
}

// ServeHTTP implements http.Handler.
func (h *FillHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := untilDone(req.Context(), h.Done)
	defer cancel()
	r, err := parseFill(req.URL.Query())
	if err != nil {
		h.Fail(w, req, err)
		return
	}
	scopes, err := h.Scopes(req)
	if err != nil {
		h.Fail(w, req, err)
		return
	}
	wanted := scopes
	if r.Scopes != nil {
		wanted = r.Scopes
		for _, scope := range wanted {
			if !slices.Contains(scopes, scope) {
				h.Fail(w, req, artifact.NotFound("scope:"+scope))
				return
			}
		}
	}
	hello, err := h.Filler.OpenFill(ctx, r, wanted)
	if err != nil {
		h.Fail(w, req, err)
		return
	}
	hello.Scopes = scopes
	if r.UpTo == 0 {
		r.UpTo = hello.Head
	}
	if err := h.stream(ctx, w, req, r, wanted, &hello); err != nil && (ctx.Err() == nil || errors.Is(err, os.ErrDeadlineExceeded)) {
		h.Logger.WarnContext(ctx, "back-fill ended early", "remote", req.RemoteAddr, "err", err)
	}
}

func parseFill(q url.Values) (r FillRequest, err error) {
	r.HubID, r.From.Kind = q.Get("hub"), q.Get("kind")
	invalid := func(name string) error {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonInvalidCursor,
			Message: fmt.Sprintf("%s is not what a back-fill takes: %.40q", name, q.Get(name)),
		}
	}
	if s := q.Get("epoch"); s != "" {
		if r.Epoch, err = strconv.Atoi(s); err != nil || r.Epoch < 0 {
			return r, invalid("epoch")
		}
	}
	if s := q.Get("upto"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return r, invalid("upto")
		}
		r.UpTo = artifact.Seq(n)
	}
	if s := q.Get("after"); s != "" {
		if err := json.Unmarshal([]byte(s), &r.From.After); err != nil {
			return r, invalid("after")
		}
	}
	r.Scopes = q["scope"]
	return r, r.From.Check()
}

func (h *FillHandler) stream(ctx context.Context, w http.ResponseWriter, req *http.Request, r FillRequest, scopes []string, hello *FillHello) error {
	out := newSender(w, req, h.WriteWait)
	err := out.value(struct {
		Type     string           `json:"type"`
		Hello    *Hello           `json:"hello"`
		Head     artifact.Seq     `json:"head"`
		Estimate map[string]int64 `json:"estimate"`
		Events   artifact.Seq     `json:"event_floor"`
	}{FrameHello, &hello.Hello, hello.Head, hello.Estimate, hello.EventFloor})
	if err != nil {
		return err
	}
	var buf []byte
	for place := &r.From; place != nil; {
		page, err := h.Filler.Fill(ctx, *place, r.UpTo, scopes)
		if err != nil {
			return h.end(ctx, out, err)
		}
		if buf, err = page.appendJSON(buf[:0]); err != nil {
			return err
		}
		if err := out.plain(buf); err != nil {
			return err
		}
		place = page.Next
	}
	return nil
}

// end tells the reader why its stream ends, if it still listens.
func (h *FillHandler) end(ctx context.Context, out *sender, cause error) error {
	reason := "the hub stops"
	if e, ok := errors.AsType[*artifact.Error](cmp.Or(context.Cause(ctx), cause)); ok {
		reason = e.Message
	} else if ctx.Err() == nil {
		reason = "the back-fill failed"
	}
	if err := out.value(Frame{Type: FrameReset, Reason: reason}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx has ended, which the reader was told
	}
	return cause
}

// fillSilence is how long the hub may take over one page: it may have to wait for
// its turn.
const fillSilence = 2 * time.Minute

// Backfill asks for what is there now, and passes the hello and then each page to
// its function, in order, until nothing is left. It returns early with the error
// of a function, or why the stream broke.
func (c *Client) Backfill(ctx context.Context, r FillRequest, hello func(FillHello) error, page func(Fill) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{"scope": r.Scopes}
	for name, value := range map[string]string{
		"hub": r.HubID, "epoch": number(r.Epoch), "upto": number(r.UpTo), "kind": r.From.Kind,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if r.From.After != nil {
		after, err := json.Marshal(r.From.After)
		if err != nil {
			return err
		}
		q.Set("after", string(after))
	}
	quiet := time.AfterFunc(fillSilence, cancel)
	defer quiet.Stop()
	resp, err := c.get(ctx, "/feed/backfill?"+q.Encode(), "zstd")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines, end, err := linesOf(resp)
	if err != nil {
		return err
	}
	defer end()
	var buf []byte
	for greeted := false; ; {
		quiet.Reset(fillSilence)
		if buf, err = readLine(lines, buf[:0]); err != nil {
			return fmt.Errorf("read back-fill: %w", cmp.Or(eof(err), err))
		}
		quiet.Stop() // storing may take long
		f, err := decodeFill(buf)
		switch {
		case err != nil:
			return err
		case f.Type == FrameReset:
			return fmt.Errorf("the hub ended the back-fill: %s", f.Reason)
		case (f.Type == FrameHello) == greeted:
			return errors.New("back-fill: the hello is not the first frame alone")
		case f.Type == FrameHello:
			greeted = true
			if err := hello(FillHello{Hello: *f.Hello, Estimate: f.Estimate, EventFloor: f.Events}); err != nil {
				return err
			}
			continue
		}
		if err := page(f.Fill); err != nil {
			return err
		}
		if f.Next == nil {
			return nil
		}
	}
}

// eof makes the end of a stream that is not whole an error of its own.
func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func number[N int | artifact.Seq](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}
