package hub_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// childEnv, set to a database's URL, makes the test binary a hub; modelEnv is the URL
// of its model, if it has one.
const (
	childEnv = "SCIDEX_TEST_HUB_CHILD"
	modelEnv = "SCIDEX_TEST_HUB_CHILD_MODEL"
)

// serveChild runs a hub, tells its URL on standard output, and ends with its
// standard input, that is, with the test.
func serveChild(url string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "hub:", err)
		return 1
	}
	pool, err := hub.OpenPool(ctx, url)
	if err != nil {
		return fail(err)
	}
	c := hub.Config{DB: pool}
	if model := os.Getenv(modelEnv); model != "" {
		if c.Embeddings, err = embed.NewClient(embed.Endpoint{URL: model, Model: "grams", Timeout: time.Minute}); err != nil {
			return fail(err)
		}
	}
	h, err := hub.Open(ctx, c)
	if err != nil {
		return fail(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	go func() { _ = h.Run(ctx) }()
	go func() { _ = http.Serve(listener, h.Handler(nil, nil)) }()
	fmt.Println("http://" + listener.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// A child is a hub in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func startChild(t *testing.T, db string, more ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+db), more...)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.kill()
		t.Fatalf("the hub did not start: %v", err)
	}
	c.url = strings.TrimSpace(line)
	return c
}

// kill ends the hub as kill -9 does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	_ = c.stdin.Close()
}

// A hammer writes to whatever hub is there, and retries with the same key until
// it knows the outcome.
type hammer struct {
	url      atomic.Pointer[string]
	token    string
	creates  atomic.Int64 // acknowledged, batches' items included
	requests atomic.Int64 // acknowledged
	replayed atomic.Int64

	mu        sync.Mutex
	revisions map[string]int // by ref, as acknowledged last; guarded by mu
}

// call runs one request to its end.
func call[In, Out any](ctx context.Context, h *hammer, v verb.Verb[In, Out], in In) (Out, error) {
	for {
		out, err := v.Call(ctx, &verb.Client{URL: *h.url.Load(), Token: h.token}, in)
		if e := artifact.AsError(err); err == nil || e.Code != artifact.CodeUnavailable {
			if err == nil {
				h.requests.Add(1)
			}
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func keyed() verb.WriteOptions { return verb.WriteOptions{IdempotencyKey: uuid.NewString()} }

// run writes until stop is closed. Ids are left to the hub: a write that runs
// twice makes two artifacts.
func (h *hammer) run(ctx context.Context, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		in := hypothesis("", uuid.NewString())
		in.WriteOptions = keyed()
		made, err := call(ctx, h, verb.Create, in)
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		h.note(made, 1)
		for range rand.IntN(3) {
			made, err = call(ctx, h, verb.Update, verb.UpdateRequest{
				Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, MergePatch: content(map[string]any{"statement": uuid.NewString()}), WriteOptions: keyed(),
			})
			if err != nil {
				return fmt.Errorf("update: %w", err)
			}
			h.note(made, 0)
		}
		if rand.IntN(3) > 0 {
			continue
		}
		batch := verb.BatchRequest{Atomic: true, IdempotencyKey: uuid.NewString()}
		for range 1 + rand.IntN(20) {
			item := hypothesis("", uuid.NewString())
			batch.Items = append(batch.Items, verb.BatchItem{Create: &item})
		}
		done, err := call(ctx, h, verb.Batch, batch)
		if err != nil {
			return fmt.Errorf("batch: %w", err)
		}
		if !done.Committed {
			return fmt.Errorf("batch: %+v", done)
		}
		for _, item := range done.Items {
			h.note(*item.Write, 1)
		}
	}
}

func (h *hammer) note(made verb.WriteResult, created int64) {
	h.creates.Add(created)
	if made.Idempotency == verb.IdempotencyReplayed {
		h.replayed.Add(1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revisions[made.Ref.Current().String()] = made.Revision
}

// TestCrash kills a hub under load, again and again, and looks for writes that
// were lost, or done twice.
func TestCrash(t *testing.T) {
	url := pgtest.URL(t, initHub)
	pool, err := hub.OpenPool(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := newHubOn(t, pool)
	journal := f.count(t, "SELECT count(*) FROM write_journal")
	h := &hammer{token: f.token(t, "ada", verb.Contributor), revisions: make(map[string]int)}
	c := startChild(t, url)
	defer func() { c.kill() }()
	h.url.Store(&c.url)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	g := new(errgroup.Group)
	for range 8 {
		g.Go(func() error { return h.run(ctx, stop) })
	}
	for range 6 {
		before := h.requests.Load()
		for h.requests.Load() < before+20 && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond) // it works again
		}
		time.Sleep(rand.N(200 * time.Millisecond))
		c.kill()
		c = startChild(t, url)
		h.url.Store(&c.url)
	}
	close(stop)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests acknowledged, %d by a replay, %d artifacts", h.requests.Load(), h.replayed.Load(), h.creates.Load())

	for _, c := range []struct {
		what, query string
		want        int
	}{
		{"artifacts", "SELECT count(*) FROM artifact WHERE type <> 'schema'", int(h.creates.Load())},
		{"commits", "SELECT count(*) FROM write_journal", journal + int(h.requests.Load())},
		{"kept answers", "SELECT count(*) FROM idempotency", int(h.requests.Load())},
		{"heads without their last revision", "SELECT count(*) FROM artifact a WHERE revision <> (SELECT count(*) FROM artifact_revision r WHERE (r.type, r.id) = (a.type, a.id))", 0},
		{"heads that are not what the log says", `
			SELECT count(*) FROM artifact a WHERE row_hash IS DISTINCT FROM (
				SELECT hash FROM feed.change c WHERE kind = 'artifact' AND ref = a.type || ':' || a.id ORDER BY seq DESC LIMIT 1)`, 0},
		{"changes whose predecessor is another", `
			SELECT count(*) FROM (SELECT prev_hash, lag(hash) OVER (PARTITION BY ref ORDER BY seq) AS before FROM feed.change WHERE kind = 'artifact') AS c
			WHERE prev_hash IS DISTINCT FROM before`, 0},
		{"events without a change", "SELECT count(*) FROM event e LEFT JOIN feed.change c ON c.seq = e.seq AND c.event_type = e.type WHERE c.seq IS NULL", 0},
		{"changes without their event", "SELECT count(*) FROM feed.change c LEFT JOIN event e ON e.seq = c.seq WHERE c.event_type IS NOT NULL AND e.seq IS NULL", 0},
	} {
		if n := f.count(t, c.query); n != c.want {
			t.Errorf("%d %s, want %d", n, c.what, c.want)
		}
	}
	rows, err := pool.Query(t.Context(), "SELECT type || ':' || id, revision FROM artifact WHERE type <> 'schema'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var ref string
		var revision int
		if err := rows.Scan(&ref, &revision); err != nil {
			t.Fatal(err)
		}
		if h.revisions[ref] != revision {
			t.Errorf("%s has revision %d, acknowledged was %d", ref, revision, h.revisions[ref])
		}
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	f.checkDense(t)
	f.checkDigest(t)
}

// TestStuckClient checks that a client that goes to sleep with the log's lock
// holds writers up for a bounded time, and fails none.
func TestStuckClient(t *testing.T) {
	url := pgtest.URL(t, initHub)
	pool, err := hub.OpenPool(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := newHubOn(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	appendRows(t, tx, 1, "public", artifact.Commons, "test:stuck")
	begun := time.Now()
	g := new(errgroup.Group)
	for i := range 4 {
		g.Go(func() error {
			_, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis(fmt.Sprint("h", i), "x"))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Errorf("a writer behind a stuck client: %v", err)
	}
	if waited := time.Since(begun); waited < time.Second || waited > 10*time.Second {
		t.Errorf("writers waited %s, want what a stuck client may sleep", waited)
	}
	f.checkDense(t)
	if n := f.count(t, "SELECT count(*) FROM feed.change WHERE ref = 'test:stuck1'"); n != 0 {
		t.Error("the stuck client's rows were kept")
	}
}

// TestDatabaseGone checks that requests that meet a dead database are told to
// try again, and that they then succeed.
func TestDatabaseGone(t *testing.T) {
	p := newProxy(t, pgtest.URL(t, initHub))
	pool, err := hub.OpenPool(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := newHubOn(t, pool)
	f.mustCreate(t, hypothesis("h", "x"))
	ctx := contributor(t.Context())
	calls := map[string]func() error{
		"get": func() error {
			_, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h"}})
			return err
		},
		"list": func() error {
			_, err := verb.List.Call(ctx, f.verbs, verb.ListRequest{})
			return err
		},
		"schema": func() error {
			_, err := verb.Schema.Call(ctx, f.verbs, verb.SchemaRequest{})
			return err
		},
		"create": func() error {
			_, err := verb.Create.Call(ctx, f.verbs, hypothesis("", "x"))
			return err
		},
	}
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	for name, down := range map[string]bool{"connections cut": false, "no connection to be had": true} {
		t.Run(name, func(t *testing.T) {
			for verbName, call := range calls {
				for range 3 {
					p.cut(down)
					if err := call(); err != nil && !artifact.IsCode(err, artifact.CodeUnavailable) || err == nil && down {
						t.Errorf("%s = %v, want unavailable", verbName, err)
					}
				}
			}
			p.cut(down)
			if down {
				for _, path := range []string{"/feed?cursor=1", "/feed/digest"} {
					if status, e := getError(t, url+path, token); status != http.StatusServiceUnavailable {
						t.Errorf("%s = %d %+v", path, status, e)
					}
				}
				if status := getStatus(t, url+"/readyz"); status != http.StatusServiceUnavailable {
					t.Errorf("/readyz = %d", status)
				}
			}
			p.cut(false)
			for verbName, call := range calls {
				eventually(t, verbName+" works again", func() bool { return call() == nil })
			}
		})
	}
}

// A proxy stands between a hub and its database.
type proxy struct {
	url string

	mu    sync.Mutex // guards what follows
	conns []net.Conn
	down  bool
}

func newProxy(t *testing.T, database string) *proxy {
	t.Helper()
	pool, err := hub.OpenPool(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	c := pool.Config().ConnConfig
	pool.Close()
	network, address := "tcp", net.JoinHostPort(c.Host, strconv.FormatUint(uint64(c.Port), 10))
	if strings.HasPrefix(c.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", c.User, c.Password, listener.Addr(), c.Database)}
	t.Cleanup(func() {
		listener.Close()
		p.cut(true)
	})
	go func() {
		for {
			front, err := listener.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial(network, address)
			if err != nil || !p.add(front, back) {
				front.Close()
				continue
			}
			go pipe(front, back)
			go pipe(back, front)
		}
	}()
	return p
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		conns[1].Close()
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

// cut breaks all connections, and refuses new ones while down.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
