package node_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

const (
	readArtifacts   = 50_000 // SCIDEX_BENCH_ARTIFACTS says another number
	readConnections = 16
	readRequests    = 4000 // in a slice
)

// BenchmarkReads measures the read verbs of a node over HTTP against handlers written
// by hand that run the same SQL, in turn, and reports the ratios of the medians.
func BenchmarkReads(b *testing.B) {
	w := newWorld(b, initHub)
	many := fillGenes(b, w)
	r := w.nodeWith(node.Config{Dir: b.TempDir(), Token: w.token("lab", verb.Viewer), Limits: verb.Limits{
		Read: verb.Rate{PerSecond: -1}, Write: verb.Rate{PerSecond: -1}, Unauthenticated: verb.Rate{PerSecond: -1},
	}})
	w.caughtUp(r)
	floors := newFloors(b, filepath.Join(r.dir, node.ReplicaFile))
	for _, m := range []struct {
		name string
		body func(n int) string // of the verb
		path func(n int) string // of the floor
	}{
		{
			"get", func(n int) string { return fmt.Sprintf(`{"ref":"gene:R%d"}`, n) },
			func(n int) string { return fmt.Sprintf("/get?id=R%d", n) },
		},
		{
			"search", func(n int) string { return fmt.Sprintf(`{"query":%q,"mode":"lexical"}`, rareWord(n%many)) },
			func(n int) string { return "/search?q=" + rareWord(n%many) },
		},
	} {
		b.Run(m.name, func(b *testing.B) {
			var times [2][]time.Duration
			for b.Loop() {
				for i, side := range []struct{ url, path, body string }{{floors, m.path(0), ""}, {r.url, verb.PathPrefix + m.name, m.body(0)}} {
					times[i] = append(times[i], slice(b, side.url, r.token, func() (path, body string) {
						n := rand.IntN(many)
						if side.body == "" {
							return m.path(n), ""
						}
						return side.path, m.body(n)
					}))
				}
			}
			median := func(i int) float64 {
				slices.Sort(times[i])
				return times[i][len(times[i])/2].Seconds()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(readRequests/median(0), "floor/s")
			b.ReportMetric(readRequests/median(1), "requests/s")
			b.ReportMetric(median(0)/median(1), "of-floor")
		})
	}
}

const rareWords = 1000

// rareWord is a word that some tens of the artifacts have.
func rareWord(n int) string {
	word := make([]byte, 0, 8)
	for n = n%rareWords + 1; n > 0; n /= 26 {
		word = append(word, byte('a'+n%26))
	}
	return "zeb" + string(word) + "ra"
}

func fillGenes(b *testing.B, w *world) (many int) {
	b.Helper()
	many = readArtifacts
	if n, err := strconv.Atoi(os.Getenv("SCIDEX_BENCH_ARTIFACTS")); err == nil {
		many = n
	}
	ada := w.as("ada", verb.Contributor)
	words := strings.Fields("amyloid beta tau neuron axon spread cortex synapse kinase pathway mouse human cell model risk allele protein signal lysosome microglia")
	for done := 0; done < many; {
		var batch verb.BatchRequest
		for range min(verb.MaxBatchItems, many-done) {
			var text strings.Builder
			for range 200 {
				text.WriteString(words[rand.IntN(len(words))] + " ")
			}
			batch.Items = append(batch.Items, verb.BatchItem{Create: &verb.CreateRequest{
				Type: "gene", ID: fmt.Sprintf("R%d", done), Title: "A gene " + rareWord(done),
				Content: json.RawMessage(fmt.Sprintf(`{"symbol":"R%d","description":%q}`, done, text.String())),
			}})
			done++
		}
		do(w, ada, verb.Batch, batch)
	}
	return many
}

// slice sends requests over connections that stay open, and returns how long that
// took. The client does no more than it must: it costs both sides the same.
func slice(b *testing.B, url, token string, next func() (path, body string)) time.Duration {
	b.Helper()
	address := strings.TrimPrefix(url, "http://")
	var left atomic.Int64
	left.Store(readRequests)
	begun := time.Now()
	var g errgroup.Group
	for range readConnections {
		g.Go(func() error {
			conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", address)
			if err != nil {
				return err
			}
			defer conn.Close()
			in := bufio.NewReaderSize(conn, 64<<10)
			for left.Add(-1) >= 0 {
				path, body := next()
				if err := request(conn, in, path, token, body); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

func request(conn io.Writer, in *bufio.Reader, path, token, body string) error {
	method := "POST"
	if body == "" {
		method = "GET"
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, token, len(body), body); err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(raw, []byte("A gene")) {
		return fmt.Errorf("answer %s: %.300s", resp.Status, raw)
	}
	return nil
}

// newFloors serves the same answers from the same file by hand.
func newFloors(b *testing.B, path string) (url string) {
	b.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro&_query_only=true&_cache_size=-8192")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(readConnections)
	prepare := func(text string) *sql.Stmt {
		stmt, err := db.PrepareContext(b.Context(), text)
		if err != nil {
			b.Fatal(err)
		}
		return stmt
	}
	get := prepare(strings.ReplaceAll(node.GetSQL, "{scopes}", "?4"))
	search := prepare(strings.ReplaceAll(node.SearchSQL, "{scopes}", "?8"))
	type matched struct{ match, name string }
	plans := make(map[string]matched)
	for n := range rareWords {
		p, err := (&verb.SearchRequest{Query: rareWord(n)}).Plan(func(string) *artifact.Schema { return new(artifact.Schema) }, func() []string { return []string{"gene"} })
		if err != nil {
			b.Fatal(err)
		}
		plans[rareWord(n)] = matched{p.Words.Match(), p.Words.Name()}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/get", func(w http.ResponseWriter, req *http.Request) {
		var out verb.GetResponse
		var provenance []byte
		row := get.QueryRowContext(context.WithoutCancel(req.Context()), "gene", req.URL.Query().Get("id"), true, "commons")
		err := scanByHand(row, &out.Artifact, &out.AsOf, &provenance)
		out.Artifact.Provenance = provenance
		answer(w, out, err)
	})
	mux.HandleFunc("/search", func(w http.ResponseWriter, req *http.Request) {
		words := plans[req.URL.Query().Get("q")]
		rows, err := search.QueryContext(req.Context(), words.match, "", "", 21, 0, false, words.name, "commons")
		if err != nil {
			answer(w, nil, err)
			return
		}
		defer rows.Close()
		var hits []verb.SearchHit
		for rows.Next() {
			var h verb.SearchHit
			if err := scanByHand(rows, &h.Artifact, &h.Score); err != nil {
				answer(w, nil, err)
				return
			}
			hits = append(hits, h)
		}
		answer(w, map[string]any{"hits": hits}, rows.Err())
	})
	srv := httptest.NewServer(mux)
	b.Cleanup(srv.Close)
	return srv.URL
}

func scanByHand(row interface{ Scan(into ...any) error }, a *artifact.Artifact, more ...any) error {
	var hash []byte
	var created, updated int64
	err := row.Scan(append([]any{
		&a.Type, &a.ID, &a.Scope, &a.Revision, &hash, &a.SchemaVersion, &a.Title, &a.State,
		&created, &a.CreatedBy, &updated, &a.UpdatedBy, &a.IsLatest, &a.SupersededBy, &a.QualityScore,
		(*[]byte)(&a.Signatures), (*[]byte)(&a.Redaction), (*[]byte)(&a.Content),
	}, more...)...)
	copy(a.ContentHash[:], hash)
	a.Ref = artifact.Ref{Type: a.Type, ID: a.ID, Hash: a.ContentHash}
	a.CreatedAt, a.UpdatedAt = time.UnixMilli(created).UTC(), time.UnixMilli(updated).UTC()
	return err
}

func answer(w http.ResponseWriter, out any, err error) {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "not found", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client may be gone
	}
}
