// Package embedtest is a small model on loopback for tests: an embeddings endpoint
// and a rerank endpoint that compute from the text.
package embedtest

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
)

// Dims is how many dimensions vectors have.
const Dims = 512

// A Server is an endpoint. Its fields may be set before it is asked; Do guards later
// changes.
type Server struct {
	URL string

	mu       sync.Mutex
	fail     func(n int, w http.ResponseWriter, req *http.Request) bool
	key      string
	requests int
	texts    []string // that were embedded
	models   []string
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := new(Server)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	mux.HandleFunc("POST /v1/rerank", s.rerank)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	s.URL = srv.URL + "/v1"
	return s
}

// Fail sets what answers the nth request, from 1, instead of the model, where it
// returns true; nil for nothing.
func (s *Server) Fail(f func(n int, w http.ResponseWriter, req *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.requests = f, 0
}

// Require makes the server refuse who does not show a key.
func (s *Server) Require(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// Texts returns the texts that were embedded, in order, and forgets them.
func (s *Server) Texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := s.texts
	s.texts = nil
	return texts
}

// Models returns by which models texts were embedded, and forgets it.
func (s *Server) Models() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	models := s.models
	s.models = nil
	return models
}

// begin reports whether the model is to answer.
func (s *Server) begin(w http.ResponseWriter, req *http.Request, in any) bool {
	s.mu.Lock()
	s.requests++
	n, fail, key := s.requests, s.fail, s.key
	s.mu.Unlock()
	if fail != nil && fail(n, w, req) {
		return false
	}
	if key != "" && req.Header.Get("Authorization") != "Bearer "+key {
		http.Error(w, "no such key: "+req.Header.Get("Authorization"), http.StatusUnauthorized) // some do tell it
		return false
	}
	if err := json.NewDecoder(req.Body).Decode(in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func (s *Server) embeddings(w http.ResponseWriter, req *http.Request) {
	var in struct {
		Model string
		Input []string
	}
	if !s.begin(w, req, &in) {
		return
	}
	s.mu.Lock()
	s.texts = append(s.texts, in.Input...)
	s.models = append(s.models, in.Model)
	s.mu.Unlock()
	type item struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	out := struct {
		Object string `json:"object"`
		Model  string `json:"model"`
		Data   []item `json:"data"`
	}{"list", in.Model, []item{}}
	for i, text := range in.Input {
		out.Data = append(out.Data, item{"embedding", i, Vector(in.Model, text)})
	}
	slices.Reverse(out.Data) // the index counts
	_ = json.NewEncoder(w).Encode(out)
}

func (s *Server) rerank(w http.ResponseWriter, req *http.Request) {
	var in struct {
		Model, Query string
		Documents    []string
	}
	if !s.begin(w, req, &in) {
		return
	}
	type result struct {
		Index int     `json:"index"`
		Score float64 `json:"relevance_score"`
	}
	out := struct {
		Results []result `json:"results"`
	}{[]result{}}
	q := Vector(in.Model, in.Query)
	for i, d := range in.Documents {
		v, sum := Vector(in.Model, d), 0.0
		for j := range q {
			sum += float64(q[j]) * float64(v[j])
		}
		out.Results = append(out.Results, result{i, sum})
	}
	_ = json.NewEncoder(w).Encode(out)
}

// Vector returns a text's vector: its words and the runs of three and four letters
// in them, hashed to dimensions with a sign, each by the root of its count, those of
// whole words more; of length 1. The model's name seeds the hash.
func Vector(model, text string) []float32 {
	counts := make(map[string]float64)
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(word) < 4 && !strings.ContainsFunc(word, unicode.IsDigit) {
			continue // most say little
		}
		counts["="+word] += 2
		padded := []rune("<" + word + ">")
		for n := 3; n <= 4; n++ {
			for i := 0; i+n <= len(padded); i++ {
				counts[string(padded[i:i+n])]++
			}
		}
	}
	numbers := make([]float64, Dims)
	for _, gram := range slices.Sorted(maps.Keys(counts)) { // sums depend on the order
		count := counts[gram]
		h := fnv.New64a()
		_, _ = h.Write([]byte(model + "\x00" + gram))
		sum := h.Sum64()
		sign := 1.0
		if sum>>63 == 1 {
			sign = -1
		}
		numbers[sum%Dims] += sign * math.Sqrt(count)
	}
	length := 0.0
	for _, n := range numbers {
		length += n * n
	}
	out := make([]float32, Dims)
	if length == 0 {
		out[0] = 1
		return out
	}
	for i, n := range numbers {
		out[i] = float32(n / math.Sqrt(length))
	}
	return out
}

// Body returns what a request says, and leaves it to be read again.
func Body(req *http.Request) string {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return ""
	}
	req.Body = io.NopCloser(bytes.NewReader(raw))
	return string(raw)
}
