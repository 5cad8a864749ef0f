package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Reranker orders texts by how well they answer a question, at an endpoint that
// speaks as Jina's and Cohere's do (POST /v1/rerank). It is safe for concurrent use.
type Reranker struct{ call *caller }

// NewReranker returns a client of an endpoint.
func NewReranker(e Endpoint) (*Reranker, error) {
	if e.Model == "" {
		return nil, errors.New("name a model")
	}
	call, err := newCaller(e, "/rerank")
	if err != nil {
		return nil, err
	}
	return &Reranker{call}, nil
}

// Order returns the places of texts, the best first. It waits no longer than
// [QueryWait] and tries once.
func (r *Reranker) Order(ctx context.Context, question string, texts []string) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryWait)
	defer cancel()
	var answer struct {
		Results []struct {
			Index int
			Score float64 `json:"relevance_score"`
		}
	}
	request := struct {
		Model     string   `json:"model"`
		Query     string   `json:"query"`
		Documents []string `json:"documents"`
		TopN      int      `json:"top_n"`
		Return    bool     `json:"return_documents"`
	}{r.call.Model, question, texts, len(texts), false}
	if err := r.call.post(ctx, request, &answer, false); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(texts) {
		return nil, fmt.Errorf("the endpoint orders %d of %d texts", len(answer.Results), len(texts))
	}
	scores := make([]float64, len(texts))
	order := make([]int, 0, len(texts))
	for _, result := range answer.Results {
		if result.Index < 0 || result.Index >= len(texts) || slices.Contains(order, result.Index) || math.IsNaN(result.Score) {
			return nil, errors.New("the endpoint's results are not numbered as the texts")
		}
		scores[result.Index] = result.Score
		order = append(order, result.Index)
	}
	slices.SortFunc(order, func(a, b int) int { // texts of one score stay as they were
		return cmp.Or(cmp.Compare(scores[b], scores[a]), a-b)
	})
	return order, nil
}
