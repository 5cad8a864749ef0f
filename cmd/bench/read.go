package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

const readArtifacts = 2000

// read measures a point read of one artifact over GraphQL against a handler
// written by hand: net/http, one prepared statement, encoding/json for the
// title alone.
func (b *bench) read(ctx context.Context) error {
	dir := filepath.Join(b.dir, "read")
	n, err := b.network(ctx, dir)
	if err != nil {
		return err
	}
	defer n.stop()
	var last verb.BatchResult
	for done := 0; done < readArtifacts; done += verb.MaxBatchItems {
		items := make([]verb.BatchItem, verb.MaxBatchItems)
		for i := range items {
			items[i].Create = &verb.CreateRequest{Type: "gene", ID: fmt.Sprintf("R%d", done+i), Title: "A gene", Content: json.RawMessage(`{"symbol":"R","description":` + string(body[len(`{"statement":`):]))}
		}
		if last, err = verb.Batch.Call(as(ctx), n.verbs, verb.BatchRequest{Items: items}); err != nil {
			return err
		}
	}
	if err := n.node.WaitApplied(ctx, last.Seq); err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, node.ReplicaFile)+"?mode=ro&_query_only=true")
	if err != nil {
		return err
	}
	defer db.Close()
	floor, err := floorServer(ctx, db)
	if err != nil {
		return err
	}
	defer floor.Close()

	const query = `query Point($ref: Ref!) { artifact(ref: $ref) { ref title revision content } }`
	var rows []row
	for _, clients := range []int{1, 16} {
		r := row{name: fmt.Sprintf("point read, %d clients", clients), unit: "/s"}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, DialContext: new(net.Dialer).DialContext}}
		var turn atomic.Int64
		next := func() string { return fmt.Sprintf("R%d", turn.Add(1)%readArtifacts) }
		for range b.rounds {
			f, err := b.rate(ctx, clients, func(ctx context.Context, _ int) error {
				return get(ctx, client, http.MethodGet, floor.URL+"/?id="+next(), n.token, nil)
			})
			if err != nil {
				return err
			}
			v, err := b.rate(ctx, clients, func(ctx context.Context, _ int) error {
				q, err := json.Marshal(map[string]any{"query": query, "variables": map[string]string{"ref": "gene:" + next()}})
				if err != nil {
					return err
				}
				return get(ctx, client, http.MethodPost, n.ts.URL+"/graphql", n.token, q)
			})
			if err != nil {
				return err
			}
			r.floor, r.value = append(r.floor, f), append(r.value, v)
		}
		rows = append(rows, r)
		client.CloseIdleConnections()
	}
	return b.table("GraphQL (floor: net/http and one prepared SQLite statement by hand; clients in the same process)", rows)
}

func floorServer(ctx context.Context, db *sql.DB) (*httptest.Server, error) {
	//nolint:sqlclosecheck // the database closes it
	stmt, err := db.PrepareContext(ctx, `
		SELECT a.title, a.revision, r.content
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = 'gene' AND a.id = ?`)
	if err != nil {
		return nil, err
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id := req.URL.Query().Get("id")
		var title string
		var revision int
		var content []byte
		if err := stmt.QueryRowContext(req.Context(), id).Scan(&title, &revision, &content); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		quoted, err := json.Marshal(title)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		var b bytes.Buffer
		fmt.Fprintf(&b, `{"data":{"artifact":{"ref":"gene:%s","title":%s,"revision":%d,"content":%s}}}`, id, quoted, revision, content)
		_, _ = w.Write(b.Bytes()) // a broken connection shows at the client
	})), nil
}

func get(ctx context.Context, client *http.Client, method, url, token string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(raw), `"title":"A gene"`) {
		return fmt.Errorf("answer %s: %.200s", resp.Status, raw)
	}
	return nil
}
