package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// freeAddr returns an address that nothing listens on, for a server that is to
// come back on it.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// runToEnd runs the program to its end and returns what it printed.
func runToEnd(t *testing.T, args ...string) string {
	t.Helper()
	p := start(t, nil, args...)
	out := new(bytes.Buffer)
	if _, err := p.stdout.WriteTo(out); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(t); err != nil {
		t.Fatalf("scidex %s: %v\n%s%s", strings.Join(args, " "), err, out, p.stderr)
	}
	return strings.TrimSpace(out.String())
}

// readySeq returns the seq that a hub or node is at, -1 while it does not answer.
func readySeq(ctx context.Context, url, member string) int64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return -1
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	var m map[string]any
	if json.NewDecoder(resp.Body).Decode(&m) != nil {
		return -1
	}
	seq, ok := m[member].(float64)
	if !ok {
		return -1
	}
	return int64(seq)
}

// TestLoadOfRealRecords loads all real records while hub and node are killed in
// the middle, with a subscriber on the node, and then compares everything.
func TestLoadOfRealRecords(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedData(t), "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	dbURL := pgtest.URL(t, nil)
	runToEnd(t, "hub", "init", "--database-url", dbURL)
	admin := runToEnd(t, "token", "--sub", "loader", "--permissions", "viewer,admin", "--database-url", dbURL)
	viewer := runToEnd(t, "token", "--sub", "lab", "--database-url", dbURL)
	hubAddr, nodeAddr, dir := freeAddr(t), freeAddr(t), t.TempDir()
	hubURL, nodeURL := "http://"+hubAddr, "http://"+nodeAddr
	startHub := func() *process { return start(t, nil, "hub", "run", "--database-url", dbURL, "--addr", hubAddr) }
	startNode := func() *process {
		return start(t, []string{"SCIDEX_TOKEN=" + viewer}, "node", "run", "--hub", hubURL, "--data", dir, "--addr", nodeAddr)
	}
	hub, node := startHub(), startNode()
	eventually(t, "the node is ready", func() bool { return readySeq(t.Context(), nodeURL, "applied_seq") > 0 })
	sub := subscribe(t, nodeAddr, viewer)

	loader := start(t, []string{"SCIDEX_TOKEN=" + admin}, append([]string{"load", "--import", "--json", "--hub", hubURL}, files...)...)
	eventually(t, "the node applies", func() bool { return readySeq(t.Context(), nodeURL, "applied_seq") > 10_000 })
	node.signal(syscall.SIGKILL)
	_ = node.wait(t) // killed
	node = startNode()
	eventually(t, "the hub writes on", func() bool { return readySeq(t.Context(), hubURL, "head") > 40_000 })
	hub.signal(syscall.SIGKILL)
	_ = hub.wait(t) // killed
	hub = startHub()
	eventually(t, "the hub is back", func() bool { return readySeq(t.Context(), hubURL, "head") > 40_000 })
	node.signal(syscall.SIGKILL)
	_ = node.wait(t) // killed
	_ = startNode()

	var summary struct {
		Artifacts, Links, Signals struct{ Created, Unchanged, Rejected, Skipped int }
		Lines, Rejected           int
		RejectedLines             int `json:"rejected_lines"`
	}
	select {
	case <-loader.done:
	case <-time.After(8 * time.Minute):
		t.Fatal("the load did not end")
	}
	line, err := loader.stdout.ReadString('\n')
	if err != nil || loader.err != nil {
		t.Fatalf("load: %v, %v\n%s", err, loader.err, loader.stderr)
	}
	if err := json.Unmarshal([]byte(line), &summary); err != nil {
		t.Fatal(err)
	}
	records := countLines(t, files)
	if summary.Lines != records || summary.RejectedLines != 0 || summary.Links.Skipped != 0 {
		t.Errorf("load = %s of %d lines\n%s", line, records, loader.stderr)
	}

	head := readySeq(t.Context(), hubURL, "head")
	eventuallyWithin(t, 3*time.Minute, "the node has all", func() bool { return readySeq(t.Context(), nodeURL, "applied_seq") == head })
	if report := runToEnd(t, "node", "verify", "--json", "--hub", hubURL, "--token", viewer, "--data", dir); !strings.Contains(report, `"differences":[]`) {
		t.Errorf("verify = %.2000s", report)
	}
	conn, err := pgx.Connect(t.Context(), dbURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	checkCounts(t, conn, files)
	checkEvents(t, conn, sub)
	checkContents(t, conn, files, &verb.Client{URL: nodeURL, Token: viewer})
	_ = hub
}

// checkCounts holds the hub's tables to the files: every record that the loader
// was answered for is there, once.
func checkCounts(t *testing.T, conn *pgx.Conn, files []string) {
	t.Helper()
	want := map[string]int{}
	links := map[string]bool{}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(raw) {
			var r struct {
				Type, ID string
				Links    []struct{ Rel, To string }
			}
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			want[r.Type]++
			for _, l := range r.Links {
				if r.Type != "signal" {
					links[r.Type+":"+r.ID+" "+l.Rel+" "+l.To] = true
				}
			}
		}
	}
	want["(links)"] = len(links)
	rows, err := conn.Query(t.Context(), `
		SELECT type, count(*) FROM artifact WHERE type <> 'schema' GROUP BY type
		UNION ALL SELECT 'signal', count(*) FROM signal
		UNION ALL SELECT '(links)', count(*) FROM link`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	var typ string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&typ, &n}, func() error { got[typ] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the hub holds %v, the files %v", got, want)
	}
}

func countLines(t *testing.T, files []string) (n int) {
	t.Helper()
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(raw, []byte("\n"))
	}
	return n
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// A subscriber follows a node's events over a websocket, as a client would: when
// the socket breaks it comes back with its cursor.
type subscriber struct {
	mu     sync.Mutex
	events []int64 // ids as they came; guarded by mu
}

func (s *subscriber) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return "0"
	}
	return strconv.FormatInt(s.events[len(s.events)-1], 10)
}

func (s *subscriber) got() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func subscribe(t *testing.T, addr, token string) *subscriber {
	t.Helper()
	s := new(subscriber)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			s.follow(ctx, addr, token)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return s
}

// follow reads one socket until it breaks.
func (s *subscriber) follow(ctx context.Context, addr, token string) {
	d := &websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}
	ws, resp, err := d.DialContext(ctx, "ws://"+addr+"/graphql", nil)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	defer ws.Close()
	const query = `subscription($since: EventId) { events(since: $since, maxBatch: 1000) { events { eventId } } }`
	for _, m := range []any{
		map[string]any{"type": "connection_init", "payload": map[string]any{"authorization": "Bearer " + token}},
		map[string]any{"type": "subscribe", "id": "1", "payload": map[string]any{"query": query, "variables": map[string]any{"since": s.last()}}},
	} {
		if ws.WriteJSON(m) != nil {
			return
		}
	}
	for {
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
		if ws.ReadJSON(&m) != nil {
			return
		}
		switch m.Type {
		case "ping":
			if ws.WriteJSON(map[string]any{"type": "pong"}) != nil {
				return
			}
		case "next":
			s.mu.Lock()
			for _, e := range m.Payload.Data.Events.Events {
				id, err := strconv.ParseInt(e.EventID, 10, 64)
				if err != nil {
					id = -1
				}
				s.events = append(s.events, id)
			}
			s.mu.Unlock()
		}
	}
}

// checkEvents holds what a subscriber got to the hub's events: each once, in
// order.
func checkEvents(t *testing.T, conn *pgx.Conn, sub *subscriber) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT seq FROM event WHERE class = 'public' ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	eventuallyWithin(t, time.Minute, "the subscriber has all events", func() bool { return len(sub.got()) >= len(want) })
	if got := sub.got(); !slices.Equal(got, want) {
		t.Errorf("the subscriber got %d events, want the hub's %d, each once and in order", len(got), len(want))
	}
}

// checkContents compares 200 random artifacts, byte for byte, between the files,
// the hub's tables and the node.
func checkContents(t *testing.T, conn *pgx.Conn, files []string, node *verb.Client) {
	t.Helper()
	for _, line := range sampleLines(t, files, 200) {
		var record struct {
			Type, ID, Title string
			Content         json.RawMessage
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		if record.Type == "signal" {
			continue
		}
		want, problems := artifact.Canonical(record.Content, "")
		if problems != nil {
			t.Fatal(problems)
		}
		const query = `
			SELECT r.content FROM artifact a JOIN artifact_revision r USING (type, id, revision)
			WHERE type = $1 AND id = $2`
		var stored string
		if err := conn.QueryRow(t.Context(), query, record.Type, record.ID).Scan(&stored); err != nil {
			t.Fatalf("%s:%s: %v", record.Type, record.ID, err)
		}
		got, err := verb.Get.Call(t.Context(), node, verb.GetRequest{Ref: artifact.Ref{Type: record.Type, ID: record.ID}})
		if err != nil {
			t.Fatalf("%s:%s: %v", record.Type, record.ID, err)
		}
		if stored != string(want) || !bytes.Equal(got.Artifact.Content, want) || got.Artifact.Title != record.Title {
			t.Errorf("%s:%s differs between file, hub and node", record.Type, record.ID)
		}
	}
}

func sampleLines(t *testing.T, files []string, n int) (sample [][]byte) {
	t.Helper()
	seen := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in := bufio.NewReaderSize(f, 1<<20)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				break
			}
			seen++
			if len(sample) < n {
				sample = append(sample, line)
			} else if i := rand.IntN(seen); i < n {
				sample[i] = line
			}
		}
	}
	if len(sample) < n {
		t.Fatal(fmt.Sprint("only ", len(sample), " lines"))
	}
	return sample
}
