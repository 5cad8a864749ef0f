package node_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

// A deaf client takes an answer and keeps its status alone.
type deaf struct {
	header http.Header
	status int
}

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(status int)      { d.status = status }

// BenchmarkPointRead counts what the server allocates for reading one artifact by
// the verb, from net/http's having read the header to the answer.
func BenchmarkPointRead(b *testing.B) {
	w := newWorld(b, initHub)
	do(w, w.as("ada", verb.Contributor, verb.Viewer), verb.Create, verb.CreateRequest{
		Type: "gene", ID: "R1", Title: "A gene", Content: json.RawMessage(`{"symbol":"R","description":"` + strings.Repeat("x", 1400) + `"}`),
	})
	r := w.node(b.TempDir(), "lab", verb.Viewer)
	w.caughtUp(r)
	server, client := r.Server(nil), &deaf{header: make(http.Header)}
	body := []byte(`{"ref":"gene:R1"}`)
	reader := bytes.NewReader(body)
	req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, verb.PathPrefix+"get", io.NopCloser(reader))
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	req.RemoteAddr = "127.0.0.1:1000"
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		server.ServeHTTP(client, req)
		if client.status != http.StatusOK {
			b.Fatalf("status %d", client.status)
		}
	}
}
