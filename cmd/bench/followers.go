package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/replicate"
)

// followersRate is how many commits a second many followers are sent.
const followersRate = 20

// views are how followers differ in what they may see.
var views = []struct {
	name   string
	scopes func(i int) []string // of the i-th follower
	rows   []string             // the scopes that a commit has rows in
}{
	{"of the same scopes", func(int) []string { return []string{artifact.Commons} }, []string{artifact.Commons, artifact.Commons}},
	{"of a scope of their own each", func(i int) []string { return []string{artifact.Commons, fmt.Sprint("lab-", i)} }, []string{artifact.Commons, artifact.Commons}},
	{"none of whom sees the same", func(i int) (scopes []string) {
		for bit := range labs {
			if i&(1<<bit) != 0 {
				scopes = append(scopes, fmt.Sprint("lab-", bit))
			}
		}
		return scopes
	}, labScopes()},
}

// labs are so many that 1,024 followers may each see others of them.
const labs = 10

func labScopes() (scopes []string) {
	for i := range labs {
		scopes = append(scopes, fmt.Sprint("lab-", i))
	}
	return scopes
}

// manyFollowers measures the CPU that the hub's process takes for each follower
// and row, with the readers in another process. The floor writes as many bytes,
// ready, to as many sockets.
func (b *bench) manyFollowers(ctx context.Context) error {
	pool, err := hub.OpenPool(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	h, err := hub.Open(ctx, hub.Config{DB: pool, Limits: noLimits})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	g := new(errgroup.Group)
	g.Go(func() error { return h.Run(running) })
	defer func() {
		cancel()
		_ = g.Wait() // what matters was measured
	}()
	var rows []row
	for v := range views {
		r := row{name: views[v].name, unit: "µs"}
		for range b.rounds {
			value, bytes, err := b.followed(ctx, h, pool, v)
			if err != nil {
				return fmt.Errorf("followers %s: %w", views[v].name, err)
			}
			floor, err := b.written(ctx, bytes)
			if err != nil {
				return err
			}
			perRow := 1e6 / float64(len(views[v].rows))
			r.value, r.floor = append(r.value, value.Seconds()*perRow), append(r.floor, floor.Seconds()*perRow)
		}
		rows = append(rows, r)
	}
	return b.table(fmt.Sprintf("CPU of the hub's process for each of %d followers and each row, %d commits/s (floor: writing the same ready bytes to sockets)",
		b.followers, followersRate), rows)
}

// followed returns the CPU time for each follower and commit, and how many bytes
// that is.
func (b *bench) followed(ctx context.Context, h *hub.Hub, pool *pgxpool.Pool, view int) (each time.Duration, bytes int, err error) {
	alone, commits, err := b.commits(ctx, pool, views[view].rows, followersRate)
	if err != nil {
		return 0, 0, err
	}
	alone /= time.Duration(commits)
	head, err := h.Head(ctx)
	if err != nil {
		return 0, 0, err
	}
	server := httptest.NewServer(&replicate.Handler{
		Log: h, Logger: slog.New(slog.DiscardHandler),
		Scopes: func(req *http.Request) ([]string, error) {
			i, err := strconv.Atoi(req.URL.Query().Get("follower"))
			return views[view].scopes(i), err
		},
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		},
	})
	defer server.Close()
	defer server.CloseClientConnections()
	r, err := startReaders(ctx, server.Listener.Addr().String(), b.followers,
		fmt.Sprintf("GET /?cursor=%d&follower={n} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: zstd\r\n\r\n", head))
	if err != nil {
		return 0, 0, err
	}
	defer r.stop()
	before, err := r.settle()
	if err != nil {
		return 0, 0, err
	}
	used, commits, err := b.commits(ctx, pool, views[view].rows, followersRate)
	if err != nil {
		return 0, 0, err
	}
	after, err := r.settle()
	if err != nil {
		return 0, 0, err
	}
	sent := commits * b.followers
	return (used - alone*time.Duration(commits)) / time.Duration(sent), int(after-before) / sent, nil
}

// commits writes to the log at a steady rate for a slice, and returns the CPU
// time that this process used.
func (b *bench) commits(ctx context.Context, pool *pgxpool.Pool, scopes []string, rate int) (used time.Duration, n int, err error) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	begun := cpuTime()
	for end := time.Now().Add(b.slice); time.Now().Before(end); n++ {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-tick.C:
		}
		if err := appendEvents(ctx, pool, scopes); err != nil {
			return 0, 0, err
		}
	}
	<-tick.C // the last one is on its way
	return cpuTime() - begun, n, nil
}

// appendEvents commits an event in each of some scopes.
func appendEvents(ctx context.Context, pool *pgxpool.Pool, scopes []string) error {
	// As a hub of another process does, so that writing costs this one little.
	//nolint:dupword // SQL's arguments
	const add = `
		SELECT $3::int + feed.append(
			array_fill(1, ARRAY[$3]), array_fill('public'::text, ARRAY[$3]), $1::text[], array_fill('event'::text, ARRAY[$3]), array_fill('E'::text, ARRAY[$3]),
			array_fill('hypothesis:h'::text, ARRAY[$3]), array_fill(1, ARRAY[$3]),
			array_fill(NULL::bytea, ARRAY[$3]), array_fill(NULL::bytea, ARRAY[$3]), array_fill(NULL::text, ARRAY[$3]),
			array_fill('bench.happened'::text, ARRAY[$3]), array_fill('hypothesis:h'::text, ARRAY[$3]), array_fill($2::text, ARRAY[$3]),
			ARRAY[$3::int], ARRAY[date_trunc('milliseconds', now())], ARRAY['bench'], ARRAY['human'], ARRAY[gen_random_uuid()], ARRAY['bench'], ARRAY[''], ARRAY[''], ARRAY['[]'], ARRAY[''],
			NULL, NULL, NULL)`
	var last int64
	if err := pool.QueryRow(ctx, add, scopes, prose(), len(scopes)).Scan(&last); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `SELECT pg_notify('scidex_log', $1)`, strconv.FormatInt(last, 10))
	return err
}

// prose returns a payload of about 1.4 KB that packs about as well as text.
func prose() string {
	words := strings.Fields("amyloid cascade precedes tau pathology in carriers of the variant while microglia respond early to plaques and later fail")
	var b strings.Builder
	b.WriteString(`{"text":"`)
	for b.Len() < 1400 {
		fmt.Fprintf(&b, "%s %x ", words[rand.IntN(len(words))], rand.IntN(4096)) //nolint:gosec // text
	}
	return b.String() + `"}`
}

// written returns the CPU time of one write of so many bytes to one of as many
// sockets as there are followers.
func (b *bench) written(ctx context.Context, bytes int) (each time.Duration, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	r, err := startReaders(ctx, listener.Addr().String(), b.followers, "")
	if err != nil {
		return 0, err
	}
	defer r.stop()
	conns := make([]net.Conn, b.followers)
	for i := range conns {
		if conns[i], err = listener.Accept(); err != nil {
			return 0, err
		}
		defer conns[i].Close() // all of them at the end
	}
	ready := make([]byte, bytes)
	tick := time.NewTicker(time.Second / followersRate)
	defer tick.Stop()
	begun, writes := cpuTime(), 0
	for end := time.Now().Add(b.slice); time.Now().Before(end); {
		<-tick.C
		for _, c := range conns {
			if _, err := c.Write(ready); err != nil {
				return 0, err
			}
			writes++
		}
	}
	used := cpuTime() - begun
	if fewest, _, err := r.bytes(); err != nil || fewest == 0 {
		return 0, errors.Join(err, errors.New("a reader got nothing"))
	}
	return used / time.Duration(writes), nil
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
