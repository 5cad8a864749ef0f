package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/embed"
)

// modelFlags are the flags of a server that asks models.
type modelFlags struct {
	embeddings, rerank embed.Endpoint
	ofHub              bool
}

// addHub adds the flags of a hub, which asks about artifacts too.
func (m *modelFlags) addHub(cmd *cobra.Command) {
	f := cmd.Flags()
	m.ofHub = true
	f.StringVar(&m.embeddings.URL, "embeddings-url", "", "OpenAI-compatible API that makes vectors of texts, such as https://host/v1; texts of all scopes, and of searches, are sent there")
	f.StringVar(&m.embeddings.Model, "embeddings-model", "", "model that the vectors are by")
	m.add(cmd)
}

// addNode adds the flags of a node, which asks about searches, by the hub's model.
func (m *modelFlags) addNode(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.embeddings.URL, "embeddings-url", "", "OpenAI-compatible API that has the hub's model, such as https://host/v1; texts of searches are sent there")
	m.add(cmd)
}

func (m *modelFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.embeddings.Key, "embeddings-key", "", "key of that API; better as SCIDEX_EMBEDDINGS_KEY: others see a command line")
	f.IntVar(&m.embeddings.PerMinute, "embeddings-rate", 0, "most questions a minute, of up to 64 texts each; 0 is no bound")
	f.StringVar(&m.rerank.URL, "rerank-url", "", "API that orders hits, as Jina's and Cohere's do, such as https://host/v1; texts of hits are sent there")
	f.StringVar(&m.rerank.Model, "rerank-model", "", "model that hits are ordered by")
	f.StringVar(&m.rerank.Key, "rerank-key", "", "key of that API; better as SCIDEX_RERANK_KEY")
}

// clients returns who asks the models; nil where no URL is given.
func (m *modelFlags) clients() (e *embed.Client, r *embed.Reranker, err error) {
	for flag, given := range map[string]embed.Endpoint{"embeddings": m.embeddings, "rerank": m.rerank} {
		if given.URL == "" && (given.Model != "" || given.Key != "") {
			return nil, nil, &exitError{2, fmt.Errorf("--%s-url is missing", flag)}
		}
	}
	if m.embeddings.URL != "" && m.ofHub && m.embeddings.Model == "" {
		return nil, nil, &exitError{2, errors.New("--embeddings-model is missing")}
	}
	if m.embeddings.URL != "" {
		if e, err = embed.NewClient(m.embeddings); err != nil {
			return nil, nil, &exitError{2, fmt.Errorf("--embeddings-url, --embeddings-model: %w", err)}
		}
	}
	if m.rerank.URL != "" {
		if r, err = embed.NewReranker(m.rerank); err != nil {
			return nil, nil, &exitError{2, fmt.Errorf("--rerank-url, --rerank-model: %w", err)}
		}
	}
	return e, r, nil
}
