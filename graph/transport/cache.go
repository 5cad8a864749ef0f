package transport

import (
	"container/list"
	"context"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"
)

// A queryCache keeps the documents used last, bounded by the bytes of their text.
// A parsed document takes some twenty times its text.
type queryCache struct {
	limit int

	mu     sync.Mutex // guards what follows
	bytes  int
	byText map[string]*list.Element
	recent *list.List // of *cachedQuery; the front was used last
}

type cachedQuery struct {
	text string
	doc  *ast.QueryDocument
}

func newQueryCache(limit int) *queryCache {
	return &queryCache{limit: limit, byText: map[string]*list.Element{}, recent: list.New()}
}

// Get implements graphql.Cache.
func (c *queryCache) Get(_ context.Context, text string) (*ast.QueryDocument, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byText[text]
	if !ok {
		return nil, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cachedQuery).doc, true
}

// Add implements graphql.Cache.
func (c *queryCache) Add(_ context.Context, text string, doc *ast.QueryDocument) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byText[text]; ok || len(text) > c.limit {
		return
	}
	c.byText[text] = c.recent.PushFront(&cachedQuery{text, doc})
	for c.bytes += len(text); c.bytes > c.limit; {
		last := c.recent.Remove(c.recent.Back()).(*cachedQuery)
		delete(c.byText, last.text)
		c.bytes -= len(last.text)
	}
}
