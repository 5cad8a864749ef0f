package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// A network is a hub and a node that follows it, both over HTTP on loopback.
type network struct {
	hub   *hub.Hub
	verbs *verb.Registry
	node  *node.Node
	hubTS *httptest.Server
	ts    *httptest.Server
	token string
	stop  func()
}

func (b *bench) network(ctx context.Context, dir string) (*network, error) {
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return nil, err
	}
	h, err := hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	n := &network{hub: h, verbs: h.Verbs(), hubTS: httptest.NewServer(h.Handler(nil, done))}
	c := verb.Claims{ActorKind: "ai_local", Permissions: []string{verb.Contributor}}
	c.Subject = "bench"
	if n.token, err = h.SigningKey().Sign(c, 24*time.Hour); err != nil {
		return nil, err
	}
	if n.node, err = node.Open(ctx, node.Config{Dir: dir, HubURL: n.hubTS.URL, Token: n.token, Limits: noLimits}); err != nil {
		return nil, err
	}
	srv := n.node.Server(nil)
	n.ts = httptest.NewServer(srv)
	running, cancel := context.WithCancel(ctx)
	g := new(errgroup.Group)
	g.Go(func() error { return h.Run(running) })
	g.Go(func() error { return n.node.Run(running) })
	n.stop = func() {
		_ = srv.Shutdown(ctx) // what matters was measured
		cancel()
		close(done)
		_ = g.Wait()
		n.ts.Close()
		n.hubTS.Close()
		_ = n.node.Close()
		pool.Close()
	}
	head, err := h.Head(ctx)
	if err != nil {
		return nil, err
	}
	return n, n.node.WaitApplied(ctx, head)
}

const (
	pacedWriters = 8
	pacedRate    = 100 // commits a second
)

// feed measures the time from a commit's acknowledgement to the frame on a
// subscriber's websocket at a node. The floor does the same by hand: a line over
// HTTP, a row into SQLite, a frame.
func (b *bench) feed(ctx context.Context) error {
	n, err := b.network(ctx, filepath.Join(b.dir, "feed"))
	if err != nil {
		return err
	}
	defer n.stop()
	p50 := row{name: "p50", unit: "ms"}
	p99 := row{name: "p99", unit: "ms"}
	for range b.rounds {
		floor, err := b.floorLatencies(ctx)
		if err != nil {
			return err
		}
		value, err := b.latencies(ctx, n)
		if err != nil {
			return err
		}
		p50.floor, p50.value = append(p50.floor, quantile(floor, 0.5)), append(p50.value, quantile(value, 0.5))
		p99.floor, p99.value = append(p99.floor, quantile(floor, 0.99)), append(p99.value, quantile(value, 0.99))
	}
	return b.table(fmt.Sprintf("Commit acknowledged to websocket frame at a node, %d writers, %d commits/s (floor: HTTP line, SQLite row, frame by hand)",
		pacedWriters, pacedRate), []row{p50, p99})
}

// arrivals notes when what was seen.
type arrivals struct {
	mu sync.Mutex
	at map[int64]time.Time // guarded by mu
}

func (a *arrivals) note(id int64) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[id] = now
}

func (a *arrivals) since(acked map[int64]time.Time) (ms []float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range acked {
		if seen, ok := a.at[id]; ok {
			ms = append(ms, max(0, seen.Sub(t).Seconds()*1000))
		}
	}
	return ms
}

// paced runs f from several writers at a steady rate for a slice and returns
// when each call, by the id it returned, was done.
func (b *bench) paced(ctx context.Context, f func(context.Context) (int64, error)) (map[int64]time.Time, error) {
	acked := make(map[int64]time.Time)
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	end := time.Now().Add(b.slice)
	for w := range pacedWriters {
		g.Go(func() error {
			interval := pacedWriters * time.Second / pacedRate
			tick := time.NewTicker(interval + time.Duration(w)*time.Millisecond/10)
			defer tick.Stop()
			for time.Now().Before(end) {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-tick.C:
				}
				id, err := f(ctx)
				if err != nil {
					return err
				}
				now := time.Now()
				mu.Lock()
				acked[id] = now
				mu.Unlock()
			}
			return nil
		})
	}
	return acked, g.Wait()
}

func (b *bench) latencies(ctx context.Context, n *network) ([]float64, error) {
	ws, resp, err := (&websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}).DialContext(ctx, "ws"+strings.TrimPrefix(n.ts.URL, "http")+"/graphql", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	defer ws.Close()
	for _, m := range []any{
		map[string]any{"type": "connection_init", "payload": map[string]any{"authorization": "Bearer " + n.token}},
		map[string]any{"type": "subscribe", "id": "1", "payload": map[string]any{"query": "subscription { events { events { eventId eventType ref } } }"}},
	} {
		if err := ws.WriteJSON(m); err != nil {
			return nil, err
		}
	}
	seen := &arrivals{at: make(map[int64]time.Time)}
	ready := make(chan struct{})
	go readFrames(ws, seen, ready)
	select {
	case <-ready:
	case <-time.After(5 * time.Second):
		return nil, errors.New("the subscription did not begin")
	}
	acked, err := b.paced(ctx, func(ctx context.Context) (int64, error) {
		out, err := verb.Create.Call(as(ctx), n.verbs, verb.CreateRequest{Type: "hypothesis", Title: "t", Content: body})
		return int64(out.Seq), err
	})
	if err != nil {
		return nil, err
	}
	return settled(seen, acked)
}

// settled waits for the last frames.
func settled(seen *arrivals, acked map[int64]time.Time) ([]float64, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		ms := seen.since(acked)
		if len(ms) == len(acked) {
			return ms, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d frames came", len(ms), len(acked))
		}
		<-time.After(10 * time.Millisecond)
	}
}

func readFrames(ws *websocket.Conn, seen *arrivals, ready chan struct{}) {
	for {
		_, raw, err := ws.ReadMessage()
		if err != nil {
			return
		}
		var m struct {
			Type    string
			Payload struct {
				Data struct {
					Events struct {
						Events []struct {
							EventID string `json:"eventId"`
						}
					}
				}
			}
		}
		if json.Unmarshal(raw, &m) != nil || m.Type != "next" {
			continue
		}
		if ready != nil {
			close(ready)
			ready = nil
		}
		for _, e := range m.Payload.Data.Events.Events {
			if id, err := strconv.ParseInt(e.EventID, 10, 64); err == nil {
				seen.note(id)
			}
		}
	}
}

// floorLatencies sends the same number of lines by hand: an HTTP stream whose
// reader puts each into SQLite and then writes a frame.
func (b *bench) floorLatencies(ctx context.Context) ([]float64, error) {
	lines := make(chan int64, 1024)
	mux := http.NewServeMux()
	mux.HandleFunc("/lines", func(w http.ResponseWriter, req *http.Request) {
		rc := http.NewResponseController(w)
		for {
			select {
			case <-req.Context().Done():
				return
			case id := <-lines:
				_, _ = fmt.Fprintf(w, `{"id":%d,"content":%s}`+"\n", id, body)
				_ = rc.Flush() // a broken stream shows in the counts
			}
		}
	})
	frames := make(chan int64, 1024)
	upgrader := websocket.Upgrader{}
	mux.HandleFunc("/ws", func(w http.ResponseWriter, req *http.Request) {
		ws, err := upgrader.Upgrade(w, req, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for id := range frames {
			if ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"id":%d}`, id)) != nil {
				return
			}
		}
	})
	ts := httptest.NewServer(mux)
	defer ts.Close()
	defer close(frames)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := b.floorReader(ctx, ts.URL, frames); err != nil {
		return nil, err
	}
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(ts.URL, "http")+"/ws", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	defer ws.Close()
	seen := &arrivals{at: make(map[int64]time.Time)}
	go func() {
		for {
			var m struct{ ID int64 }
			if ws.ReadJSON(&m) != nil {
				return
			}
			seen.note(m.ID)
		}
	}()
	var next artifact.Seq
	var mu sync.Mutex
	acked, err := b.paced(ctx, func(context.Context) (int64, error) {
		mu.Lock()
		next++
		id := int64(next)
		mu.Unlock()
		lines <- id
		return id, nil
	})
	if err != nil {
		return nil, err
	}
	return settled(seen, acked)
}

func (b *bench) floorReader(ctx context.Context, url string, frames chan<- int64) error {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(b.dir, fmt.Sprintf("floor-%d.db", time.Now().UnixNano()))+"?_journal_mode=WAL&_synchronous=NORMAL")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE line (id INTEGER PRIMARY KEY, content TEXT)`); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/lines", http.NoBody)
	if err != nil {
		return err
	}
	go func() {
		defer db.Close()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for {
			raw, err := in.ReadBytes('\n')
			var m struct {
				ID      int64
				Content json.RawMessage
			}
			if err != nil || json.Unmarshal(raw, &m) != nil {
				return
			}
			if _, err := db.ExecContext(ctx, `INSERT INTO line (id, content) VALUES (?, ?)`, m.ID, string(m.Content)); err != nil {
				return
			}
			frames <- m.ID
		}
	}()
	return nil
}
