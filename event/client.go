package event

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A Client streams events from a hub or a node, across whatever breaks in between:
// each event comes at least once, in order, and none is left out. It is for one
// stream at a time.
type Client struct {
	URL   string // of the server
	Token string
	HTTP  *http.Client // without a timeout; nil for the default one
	// Broken, when not nil, is told why the stream broke off, each time before it is
	// taken up again.
	Broken func(error)
	// Began, when not nil, is told where a durable stream begins, each time that one
	// does.
	Began func(verb.ConsumerPlace)

	passed int // ids, of events or alone
}

const (
	silence  = 3 * keepAlive // after which a stream is dead
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
	maxFrame = 4 << 20 // bytes of one event's line
)

// Follow passes events to each until ctx ends, each fails, or the server refuses.
// It returns ctx's error then, each's, or the server's, an [*artifact.Error]. A
// durable one goes on after the cursor that is kept, each time: what was passed and
// not noted as done with, by consumers/advance, comes again. See [Client.Consume].
func (c *Client) Follow(ctx context.Context, in verb.SubscribeRequest, each func(verb.Event) error) error {
	wait := retryMin
	for {
		before := c.passed
		err := c.once(ctx, &in, each)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var refused *artifact.Error
		switch {
		case errors.As(err, &refused) && !refused.Retryable:
			return err
		case errors.As(err, new(eachError)):
			return errors.Unwrap(err)
		}
		if c.passed != before {
			wait = retryMin // it was under way
		}
		if c.Broken != nil {
			c.Broken(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // jitter, not a secret
		}
		wait = min(2*wait, retryMax)
	}
}

// An eachError is the error of who is passed the events.
type eachError struct{ err error }

func (e eachError) Error() string { return e.err.Error() }
func (e eachError) Unwrap() error { return e.err }

// once streams until the stream breaks, and notes how far it came.
func (c *Client) once(ctx context.Context, in *verb.SubscribeRequest, each func(verb.Event) error) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+verb.SubscribePath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.Token)
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	dead := time.AfterFunc(silence, cancel)
	defer dead.Stop()
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refusal(res)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxFrame)
	var f received
	for lines.Scan() {
		dead.Reset(silence)
		if len(lines.Bytes()) > 0 {
			f.add(lines.Bytes())
			continue
		}
		if err := c.pass(&f, in, each); err != nil {
			return err
		}
		f = received{}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return fmt.Errorf("subscribe: %w", io.ErrUnexpectedEOF)
}

// refusal returns the error that a server answered with.
func refusal(res *http.Response) error {
	e := new(artifact.Error)
	if raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20)); err != nil || json.Unmarshal(raw, e) != nil || e.Code == "" {
		return fmt.Errorf("subscribe: the server answers %s", res.Status)
	}
	return e
}

// endName is the name of the event that says why a stream ends.
const endName = "end"

// received is what came between two blank lines.
type received struct {
	id, name string
	data     []byte
}

func (f *received) add(line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "id":
		f.id = string(value)
	case "event":
		f.name = string(value)
	case "data":
		f.data = append([]byte(nil), value...)
	}
}

// pass takes in what was received. A cursor counts once its event was passed on.
func (c *Client) pass(f *received, in *verb.SubscribeRequest, each func(verb.Event) error) error {
	if f.name == endName {
		e := new(artifact.Error)
		if err := json.Unmarshal(f.data, e); err != nil {
			return fmt.Errorf("subscribe: the stream ends without a reason: %w", err)
		}
		return e
	}
	if f.name == "consumer" {
		var p verb.ConsumerPlace
		if err := json.Unmarshal(f.data, &p); err != nil {
			return fmt.Errorf("subscribe: what came is no place: %w", err)
		}
		if in.Since = nil; c.Began != nil { // it is kept there from now on
			c.Began(p)
		}
		return nil
	}
	if f.data != nil {
		var e verb.Event
		if err := json.Unmarshal(f.data, &e); err != nil {
			return fmt.Errorf("subscribe: what came is no event: %w", err)
		}
		if err := each(e); err != nil {
			return eachError{err}
		}
	}
	if f.id != "" {
		id, err := strconv.ParseInt(f.id, 10, 64)
		if err != nil {
			return fmt.Errorf("subscribe: %q is no id of an event", f.id)
		}
		if c.passed++; !in.Durable {
			at := artifact.Seq(id)
			in.Since = &at
		}
	}
	return nil
}
