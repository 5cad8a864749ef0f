package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// eventsRate is how many events a second many subscribers are sent.
const eventsRate = 2

// subscriptions are filters of subscribers, of which there are as many as kinds.
var subscriptions = []struct {
	name   string
	filter string // {kind} stands for a number
	share  int    // each lets one of so many events pass
}{
	{"filters that let all pass", `{"!=":[{"var":"payload.kind"},{kind}]}`, 1},
	{"filters that let each second one pass", `{"==":[{"%":[{"+":[{"var":"event_id"},{kind}]},2]},0]}`, 2},
	{"filters that let each fifth one pass", `{"==":[{"%":[{"+":[{"var":"event_id"},{kind}]},5]},0]}`, 5},
}

// events measures what subscribers to a node's events cost its process, with the
// subscribers in another one, and what a poll costs beside its SQL.
func (b *bench) events(ctx context.Context) error {
	dir := filepath.Join(b.dir, "events")
	n, err := b.network(ctx, dir)
	if err != nil {
		return err
	}
	defer n.stop()
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	var cpu []row
	memory := row{name: "memory of one", unit: "KB"}
	idle := row{name: "CPU while nothing happens", unit: "ms/s"}
	for _, s := range subscriptions {
		r := row{name: s.name, unit: "µs"}
		for range b.rounds {
			value, err := b.subscribed(ctx, n, pool, s.filter, s.share)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			floor, err := b.streamed(ctx, value.bytes)
			if err != nil {
				return err
			}
			r.value, r.floor = append(r.value, value.micros), append(r.floor, floor.micros)
			memory.value, memory.floor = append(memory.value, value.kb), append(memory.floor, floor.kb)
			idle.value, idle.floor = append(idle.value, value.idle), append(idle.floor, value.alone)
		}
		cpu = append(cpu, r)
	}
	title := fmt.Sprintf("CPU of the node's process for each event sent to one of %d subscribers with %d filters (floor: a net/http handler that writes the same ready bytes)", b.subscribers, kinds)
	if err := b.table(title, cpu); err != nil {
		return err
	}
	if err := b.table("Subscribers that wait (floor of memory: that handler's; of CPU: hub and node without subscribers)", []row{memory, idle}); err != nil {
		return err
	}
	return b.polls(ctx, n, pool, filepath.Join(dir, node.ReplicaFile))
}

// A cost is what streams cost a process.
type cost struct {
	micros      float64 // of CPU, for each event sent
	bytes       int     // of each event sent
	kb          float64 // of memory, for each stream
	idle, alone float64 // milliseconds of CPU a second with streams, and without
}

// subscribed measures streams of a node.
func (b *bench) subscribed(ctx context.Context, n *network, pool *pgxpool.Pool, filter string, share int) (c cost, err error) {
	rows := []string{artifact.Commons}
	alone, commits, err := b.commits(ctx, pool, rows, eventsRate)
	if err != nil {
		return c, err
	}
	alone /= time.Duration(commits)
	c.alone = b.quiet()
	request := fmt.Sprintf("GET %s?filter=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
		verb.SubscribePath, unescapeKind(url.QueryEscape(filter)), n.token)
	before := inUse()
	r, err := startReaders(ctx, n.ts.Listener.Addr().String(), b.subscribers, request)
	if err != nil {
		return c, err
	}
	defer r.stop()
	if _, err := r.settle(); err != nil {
		return c, err
	}
	c.kb = (inUse() - before) / float64(b.subscribers) / 1024
	c.idle = b.quiet()
	start, err := r.settle() // a stream says now and then that nothing happened
	if err != nil {
		return c, err
	}
	begun := cpuTime()
	if _, commits, err = b.commits(ctx, pool, rows, eventsRate); err != nil {
		return c, err
	}
	end, err := r.settle()
	if err != nil {
		return c, err
	}
	used := cpuTime() - begun - alone*time.Duration(commits)
	sent := commits * b.subscribers / share
	c.micros, c.bytes = used.Seconds()*1e6/float64(sent), int(end-start)/sent
	return c, nil
}

func unescapeKind(query string) string {
	return string(bytes.ReplaceAll([]byte(query), []byte(url.QueryEscape("{kind}")), []byte("{kind}")))
}

// streamed measures a handler that sends ready bytes to as many streams.
func (b *bench) streamed(ctx context.Context, size int) (c cost, err error) {
	var now atomic.Pointer[chan struct{}]
	wake := make(chan struct{})
	now.Store(&wake)
	ready := bytes.Repeat([]byte("x"), size)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		conn := http.NewResponseController(w)
		for next := *now.Load(); ; next = *now.Load() {
			if conn.Flush() != nil {
				return
			}
			select {
			case <-req.Context().Done():
				return
			case <-next:
			}
			if _, err := w.Write(ready); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	before := inUse()
	r, err := startReaders(ctx, server.Listener.Addr().String(), b.subscribers, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err != nil {
		return c, err
	}
	defer r.stop()
	if _, err := r.settle(); err != nil {
		return c, err
	}
	c.kb = (inUse() - before) / float64(b.subscribers) / 1024
	tick := time.NewTicker(time.Second / eventsRate)
	defer tick.Stop()
	begun, sent := cpuTime(), 0
	for end := time.Now().Add(b.slice); time.Now().Before(end); sent += b.subscribers {
		<-tick.C
		next := make(chan struct{})
		close(*now.Swap(&next))
	}
	if _, err := r.settle(); err != nil {
		return c, err
	}
	if sent == 0 {
		return c, errors.New("nothing was sent")
	}
	c.micros = (cpuTime() - begun).Seconds() * 1e6 / float64(sent)
	return c, nil
}

// quiet returns the CPU time that this process uses in a second, in milliseconds.
func (b *bench) quiet() float64 {
	begun, at := cpuTime(), time.Now()
	<-time.After(b.slice)
	return (cpuTime() - begun).Seconds() * 1000 / time.Since(at).Seconds()
}

// inUse returns how many bytes the process holds, stacks among them.
func inUse() float64 {
	runtime.GC()
	runtime.GC() // what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// pollSize is how many events a poll is to bring.
const pollSize = 100

// polls measures a poll of 100 events that are no longer in memory, as a handler
// answers it, against the query that it takes.
func (b *bench) polls(ctx context.Context, n *network, pool *pgxpool.Pool, file string) error {
	scopes := make([]string, 100)
	for i := range scopes {
		scopes[i] = artifact.Commons
	}
	for range 100 { // more than a node keeps in memory
		if err := appendEvents(ctx, pool, scopes); err != nil {
			return err
		}
	}
	head, err := n.hub.Head(ctx)
	if err != nil {
		return err
	}
	if err := n.node.WaitApplied(ctx, head); err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", "file:"+file+"?mode=ro&_query_only=true")
	if err != nil {
		return err
	}
	defer db.Close()
	stmt, err := db.PrepareContext(ctx, `SELECT seq, type, ref, scope, actor_id, actor_kind, at, payload FROM event WHERE seq > ? ORDER BY seq LIMIT 100`)
	if err != nil {
		return err
	}
	defer stmt.Close()
	var oldest artifact.Seq
	if err := db.QueryRowContext(ctx, `SELECT min(seq) - 1 FROM event`).Scan(&oldest); err != nil {
		return err
	}
	server := n.node.Server(nil)
	body := fmt.Sprintf(`{"since":%d,"limit":%d}`, oldest, pollSize)
	r := row{name: "poll of 100 events", unit: "µs"}
	for range b.rounds {
		took, err := b.micros(func() error { return readRows(ctx, stmt, oldest) }, func() error {
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, verb.PathPrefix+verb.Poll.Name, bytes.NewReader([]byte(body)))
			req.Header.Set("Authorization", "Bearer "+n.token)
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if server.ServeHTTP(w, req); w.Code != http.StatusOK {
				return errors.New(w.Body.String())
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.floor, r.value = append(r.floor, took[0]), append(r.value, took[1])
	}
	return b.table("Polls at a node, as its handler answers them (floor: the prepared SQLite statement alone)", []row{r})
}

func readRows(ctx context.Context, stmt *sql.Stmt, after artifact.Seq) error {
	rows, err := stmt.QueryContext(ctx, int64(after))
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var seq, at int64
		var kind, ref, scope, actor, actorKind string
		var payload []byte
		if err := rows.Scan(&seq, &kind, &ref, &scope, &actor, &actorKind, &at, &payload); err != nil {
			return err
		}
	}
	if n != pollSize {
		return fmt.Errorf("the query brings %d events", n)
	}
	return rows.Err()
}
