package replicate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Digest asks the hub for the digest of its state at a position, in the scopes that
// the token may follow. Another hub or epoch, and a log that took another course,
// refuse.
func (c *Client) Digest(ctx context.Context, at Position) (d Digest, err error) {
	q := make(url.Values)
	if !at.Chain.IsZero() {
		q.Set("chain", at.Chain.String())
	}
	return d, c.ask(ctx, at, q, &d)
}

// Buckets asks for the sums of a range, divided into about n parts, at a position.
func (c *Client) Buckets(ctx context.Context, at Position, r KeyRange, n int) (b Buckets, err error) {
	return b, c.ask(ctx, at, rangeValues(&r, "buckets", strconv.Itoa(n)), &b)
}

// Listing asks for the things of a range with the hashes of their rows, at a
// position.
func (c *Client) Listing(ctx context.Context, at Position, r KeyRange) (l Listing, err error) {
	return l, c.ask(ctx, at, rangeValues(&r, "list", "1"), &l)
}

func rangeValues(r *KeyRange, name, value string) url.Values {
	return url.Values{
		"scope": {r.Scope}, "kind": {r.Kind}, "type": {r.Type}, "after": {r.After}, "to": {r.To}, name: {value},
	}
}

func (c *Client) ask(ctx context.Context, at Position, q url.Values, answer any) error {
	identify(q, at)
	q.Set("seq", strconv.FormatInt(int64(at.Seq), 10))
	resp, err := c.get(ctx, "/feed/digest?"+q.Encode(), "")
	if err != nil {
		return err
	}
	return readAnswer(resp, answer)
}

// identify says which hub, in which epoch, is meant.
func identify(q url.Values, at Position) {
	q.Set("hub", at.HubID)
	q.Set("epoch", strconv.Itoa(at.Epoch))
}

// Stored asks for things as the hub's tables hold them now. The answer may hold the
// first ones alone; the caller asks again for the rest.
func (c *Client) Stored(ctx context.Context, from Position, r RowsRequest) (s StoredRows, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return s, err
	}
	q := make(url.Values)
	identify(q, from)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/feed/rows?"+q.Encode(), bytes.NewReader(body))
	if err != nil {
		return s, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.send(req)
	if err != nil {
		return s, err
	}
	return s, readAnswer(resp, &s)
}

func readAnswer(resp *http.Response, answer any) error {
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("read digest: %w", err)
	}
	return nil
}
