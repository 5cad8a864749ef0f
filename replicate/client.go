package replicate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/scidex-ai/substrate/artifact"
)

// A Client is a [Source] that reads a hub's feed over HTTP.
type Client struct {
	URL   string // base URL of the hub, without a trailing slash
	Token string
	// Credential, when set, returns the node's own credential, which is sent
	// instead of a token.
	Credential func() (string, error)
	HTTP       *http.Client // without a timeout: streams are long; nil means http.DefaultClient
}

// nodeHeader is where a node shows its credential; verb.NodeHeader names it for
// calls.
const nodeHeader = "SciDEX-Node"

// Silence is how long a stream may say nothing before the client gives it up: a
// few beats.
const Silence = 4 * BeatInterval

// Follow implements [Source].
func (c *Client) Follow(ctx context.Context, from Position, handle func(Frame) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{"cursor": {from.Token()}}
	if from.HubID != "" {
		q.Set("hub", from.HubID)
	}
	if !from.Chain.IsZero() {
		q.Set("chain", from.Chain.String())
	}
	// A connection that dies without a word leaves the request or the read
	// hanging: a timer ends it.
	quiet := time.AfterFunc(Silence, cancel)
	defer quiet.Stop()
	resp, err := c.get(ctx, "/feed?"+q.Encode(), "zstd")
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
	for {
		buf, err = readLine(lines, buf[:0])
		if err != nil {
			return fmt.Errorf("read feed: %w", err)
		}
		quiet.Reset(Silence)
		f, err := DecodeFrame(buf)
		if err != nil { // it comes the same again: what the hub has is wrong
			return &TransientError{Err: err, Seldom: true, Next: "the hub's operator must run scidex hub verify"}
		}
		if f.Type == FrameReset {
			return fmt.Errorf("the hub ended the feed: %s", f.Reason)
		}
		// Applying may take long; silence counts only while waiting to read.
		quiet.Stop()
		if err := handle(f); err != nil {
			return err
		}
		quiet.Reset(Silence)
	}
}

// linesOf reads a stream's lines, unpacked. The caller calls end when it is done.
func linesOf(resp *http.Response) (lines *bufio.Reader, end func(), err error) {
	const size = 256 << 10
	if resp.Header.Get("Content-Encoding") != "zstd" {
		return bufio.NewReaderSize(resp.Body, size), func() {}, nil
	}
	dec, err := zstd.NewReader(resp.Body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, nil, err
	}
	return bufio.NewReaderSize(dec, size), dec.Close, nil
}

// readLine appends one line to buf, without its newline.
func readLine(r *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		buf = append(buf, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(buf, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(buf) > MaxFrameBytes:
			return nil, fmt.Errorf("a frame of more than %d bytes", MaxFrameBytes)
		}
	}
}

// get sends a request with the client's token and turns a failure into the
// error that the hub returned.
func (c *Client) get(ctx context.Context, path, encoding string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if encoding != "" {
		req.Header.Set("Accept-Encoding", encoding)
	}
	return c.send(req)
}

// send sends a request as [Client.get] does.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	if c.Credential != nil {
		credential, err := c.Credential()
		if err != nil {
			return nil, err
		}
		req.Header.Set(nodeHeader, credential)
	} else {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	e := new(artifact.Error)
	if err != nil || json.Unmarshal(raw, e) != nil || e.Code == "" {
		return nil, fmt.Errorf("hub answered %s", resp.Status)
	}
	return nil, e
}
