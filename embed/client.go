package embed

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Client makes vectors of texts at an OpenAI-compatible endpoint (POST
// /v1/embeddings). It is safe for concurrent use.
type Client struct {
	call *caller

	mu     sync.Mutex
	recent *list.List               // guarded by mu: of *asked, the latest first
	known  map[string]*list.Element // guarded by mu: the same, by model and text
	away   time.Time                // guarded by mu: until then only who insists asks
	why    error                    // guarded by mu: of away
}

type asked struct {
	key    string
	vector Vector
}

const (
	// recentQueries is how many texts of searches are not asked for again: the pages
	// of a search are of one text.
	recentQueries = 256
	// QueryWait bounds how long a search waits for the endpoint.
	QueryWait = 5 * time.Second
	// awayFor is how long searches that can do without the endpoint leave it alone
	// once it failed.
	awayFor = 10 * time.Second
)

// NewClient returns a client of an endpoint. One that is only to ask about searches,
// each by the model that its vectors are by, needs no model.
func NewClient(e Endpoint) (*Client, error) {
	call, err := newCaller(e, "/embeddings")
	if err != nil {
		return nil, err
	}
	return &Client{call: call, recent: list.New(), known: make(map[string]*list.Element)}, nil
}

// Model returns the name of the model that is configured; "" for none.
func (c *Client) Model() string { return c.call.Model }

// Embed returns the vectors of texts, in their order. It tries again what may pass.
func (c *Client) Embed(ctx context.Context, texts []string) ([]Vector, error) {
	return c.embed(ctx, c.call.Model, texts, true)
}

func (c *Client) embed(ctx context.Context, model string, texts []string, patient bool) ([]Vector, error) {
	var answer struct {
		Data []struct {
			Index     int
			Embedding []float32
		}
	}
	request := struct {
		Model  string   `json:"model"`
		Input  []string `json:"input"`
		Format string   `json:"encoding_format"`
	}{model, texts, "float"}
	if err := c.call.post(ctx, request, &answer, patient); err != nil {
		return nil, err
	}
	if len(answer.Data) != len(texts) {
		return nil, fmt.Errorf("the endpoint answers %d texts with %d vectors", len(texts), len(answer.Data))
	}
	out := make([]Vector, len(texts))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(out) || out[d.Index] != nil {
			return nil, errors.New("the endpoint's vectors are not numbered as the texts")
		}
		v, err := Quantize(d.Embedding)
		if err != nil {
			return nil, fmt.Errorf("the endpoint answers with %w", err)
		}
		out[d.Index] = v
	}
	for _, v := range out {
		if len(v) != len(out[0]) {
			return nil, errors.New("the endpoint's vectors are not of one length")
		}
	}
	return out, nil
}

// Query returns the vector of a search's text by a model, with some dimensions. A
// caller who does not insist gets an error at once while the endpoint is known to be
// away.
func (c *Client) Query(ctx context.Context, model string, dims int, text string, insist bool) (Vector, error) {
	key := model + "\n" + text
	c.mu.Lock()
	if e, ok := c.known[key]; ok {
		c.recent.MoveToFront(e)
		v := e.Value.(*asked).vector
		c.mu.Unlock()
		return v, checkDims(v, dims)
	}
	why, away := c.why, time.Now().Before(c.away)
	c.mu.Unlock()
	if away && !insist {
		return nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, QueryWait)
	defer cancel()
	vectors, err := c.embed(ctx, model, []string{text}, false)
	if err == nil {
		err = checkDims(vectors[0], dims)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // the caller hung up
			c.away, c.why = time.Now().Add(awayFor), err
		}
		return nil, err
	}
	c.away = time.Time{}
	if _, ok := c.known[key]; !ok {
		c.known[key] = c.recent.PushFront(&asked{key, vectors[0]})
	}
	if c.recent.Len() > recentQueries {
		last := c.recent.Remove(c.recent.Back()).(*asked)
		delete(c.known, last.key)
	}
	return vectors[0], nil
}

func checkDims(v Vector, dims int) error {
	if len(v) != dims {
		return fmt.Errorf("the endpoint's vectors have %d dimensions, and those that are stored %d", len(v), dims)
	}
	return nil
}
