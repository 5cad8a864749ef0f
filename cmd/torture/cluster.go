package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/internal/postgres"
)

// A cluster is the product as it runs: a database, two hubs on it, a node that
// follows one of them through a proxy, and who listens to the node.
type cluster struct {
	bin   string
	dir   string
	pg    *postgres.Server
	db    *pgxpool.Pool // for looking at what became of everything
	hubs  [2]*process
	urls  [2]string // of the hubs
	proxy *proxy
	node  *process
	data  string // the node's directory
	token string // of the agent that writes
	ears  []*subscriber
	first int64 // seq after which events are counted
	done  context.CancelFunc
	wrote *history

	nodeAddr string
}

func newCluster(ctx context.Context, bin string) (c *cluster, err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("%w: run make build", err)
	}
	dir, err := os.MkdirTemp("", "scidex-torture-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the database's user must pass through
		return nil, err
	}
	c = &cluster{bin: bin, dir: dir, data: filepath.Join(dir, "node"), wrote: newHistory()}
	defer func() {
		if err != nil {
			c.stop(context.WithoutCancel(ctx))
		}
	}()
	if err := c.startDatabase(ctx); err != nil {
		return nil, err
	}
	if _, err := c.output(ctx, "hub", "init", "--database-url", c.pg.URL()); err != nil {
		return nil, err
	}
	token, err := c.output(ctx, "token", "--sub", "writer", "--permissions", "viewer,contributor", "--ttl", "24h", "--database-url", c.pg.URL())
	if err != nil {
		return nil, err
	}
	c.token = strings.TrimSpace(token)
	if err := c.startHubs(ctx); err != nil {
		return nil, err
	}
	if err := c.startNode(ctx); err != nil {
		return nil, err
	}
	listening, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.done = cancel
	for range 3 {
		c.ears = append(c.ears, subscribe(listening, c.nodeAddr, c.token, c.first))
	}
	return c, nil
}

func (c *cluster) startDatabase(ctx context.Context) (err error) {
	c.pg, err = postgres.Start(ctx, postgres.Config{Dir: c.dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil || c.db != nil {
		return err
	}
	c.db, err = pgxpool.New(ctx, c.pg.URL())
	return err
}

// postmaster returns the process id of the database's server.
func (c *cluster) postmaster() (int, error) {
	dir := filepath.Join(c.dir, "postgres")
	if raw, err := os.ReadFile(filepath.Join(c.dir, "postgres.location")); err == nil {
		dir = strings.TrimSpace(string(raw))
	}
	raw, err := os.ReadFile(filepath.Join(dir, "postmaster.pid")) //nolint:gosec // our own directory
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return strconv.Atoi(line)
}

func (c *cluster) startHubs(ctx context.Context) error {
	for i := range c.hubs {
		addr, err := freeAddr(ctx)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("hub-%d", i)
		c.urls[i] = "http://" + addr
		c.hubs[i] = &process{name: name, log: filepath.Join(c.dir, name+".log"), argv: []string{
			c.bin, "hub", "run", "--database-url", c.pg.URL(), "--addr", addr, "--limit-write", "-1", "--limit-read", "-1",
		}}
		if err := c.hubs[i].start(); err != nil {
			return err
		}
	}
	for _, url := range c.urls {
		if err := until(ctx, url+" is ready", func() bool { return ready(ctx, url, "head") >= 0 }); err != nil {
			return err
		}
	}
	c.first = ready(ctx, c.urls[0], "head")
	return nil
}

func (c *cluster) startNode(ctx context.Context) (err error) {
	if c.proxy, err = startProxy(ctx, c.dir, strings.TrimPrefix(c.urls[0], "http://")); err != nil {
		return err
	}
	invite, err := c.output(ctx, "hub", "invite", "--lab", "Torture", "--json", "--hub-url", "http://"+c.proxy.addr, "--database-url", c.pg.URL())
	if err != nil {
		return err
	}
	var invited struct{ Code string }
	if err := json.Unmarshal([]byte(invite), &invited); err != nil {
		return fmt.Errorf("%w in %s", err, invite)
	}
	if _, err := c.output(ctx, "node", "join", "http://"+c.proxy.addr+"#"+invited.Code, "--data", c.data); err != nil {
		return err
	}
	if c.nodeAddr, err = freeAddr(ctx); err != nil {
		return err
	}
	c.node = &process{name: "node", log: filepath.Join(c.dir, "node.log"), argv: []string{
		c.bin, "node", "run", "--data", c.data, "--addr", c.nodeAddr, "--limit-read", "-1",
	}}
	if err := c.node.start(); err != nil {
		return err
	}
	return until(ctx, "the node is ready", func() bool { return ready(ctx, "http://"+c.nodeAddr, "applied_seq") >= 0 })
}

// whole starts what does not run and waits until all answer.
func (c *cluster) whole(ctx context.Context) error {
	select {
	case <-c.pg.Done():
		if err := c.startDatabase(ctx); err != nil {
			return err
		}
	default:
	}
	if err := c.proxy.heal(ctx); err != nil {
		return err
	}
	for _, p := range []*process{c.hubs[0], c.hubs[1], c.node} {
		if err := p.ensure(); err != nil {
			return err
		}
	}
	for _, url := range c.urls {
		if err := until(ctx, url+" is ready", func() bool { return ready(ctx, url, "head") >= 0 }); err != nil {
			return err
		}
	}
	return until(ctx, "the node is ready", func() bool { return ready(ctx, "http://"+c.nodeAddr, "applied_seq") >= 0 })
}

// settled waits until the node and its listeners have all there is.
func (c *cluster) settled(ctx context.Context) error {
	var head int64
	if err := c.db.QueryRow(ctx, "SELECT max(seq) FROM feed.change").Scan(&head); err != nil {
		return err
	}
	return until(ctx, fmt.Sprintf("the node is at %d", head), func() bool {
		return ready(ctx, "http://"+c.nodeAddr, "applied_seq") >= head
	})
}

func (c *cluster) stop(ctx context.Context) {
	if c.done != nil {
		c.done()
	}
	for _, p := range append([]*process{c.node}, c.hubs[:]...) {
		if p != nil && p.done != nil {
			p.signal(syscall.SIGTERM)
			select {
			case <-p.done:
			case <-time.After(20 * time.Second):
				p.kill()
			}
		}
	}
	if c.proxy != nil {
		c.proxy.process.kill()
	}
	if c.db != nil {
		c.db.Close()
	}
	if c.pg != nil {
		if err := c.pg.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// ready returns a member of what a server says of itself, -1 while it does not.
func ready(ctx context.Context, url, member string) int64 {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
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
	if seq, ok := m[member].(float64); ok && resp.StatusCode == http.StatusOK {
		return int64(seq)
	}
	return -1
}

func freeAddr(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// A proxy stands between the node and its hub: a toxiproxy.
type proxy struct {
	*process

	api  string
	addr string
}

const proxyPath = "/proxies/hub"

func startProxy(ctx context.Context, dir, upstream string) (*proxy, error) {
	api, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(api)
	// Built first: a go tool that is killed would leave what it runs behind.
	bin := filepath.Join(dir, "toxiproxy")
	build := exec.CommandContext(ctx, "go", "build", "-modfile=tools/toxiproxy/go.mod", "-o", bin, "github.com/Shopify/toxiproxy/v2/cmd/server") //nolint:gosec // our own directory
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build toxiproxy: %w: %s", err, out)
	}
	p := &proxy{
		process: &process{name: "toxiproxy", log: filepath.Join(dir, "toxiproxy.log"), argv: []string{bin, "-host", host, "-port", port}},
		api:     "http://" + api, addr: addr,
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	made := func() bool {
		return p.post(ctx, "/proxies", map[string]any{"name": "hub", "listen": addr, "upstream": upstream, "enabled": true}) == nil
	}
	return p, until(ctx, "toxiproxy answers", made)
}

func (p *proxy) post(ctx context.Context, path string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.api+path, strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("toxiproxy: %s: %s", path, resp.Status)
	}
	return nil
}

// cut ends all connections and takes no more.
func (p *proxy) cut(ctx context.Context) error {
	return p.post(ctx, proxyPath, map[string]any{"enabled": false})
}

// poison changes what passes in both directions.
func (p *proxy) poison(ctx context.Context, kind string, attributes map[string]any) error {
	var errs error
	for _, stream := range []string{"upstream", "downstream"} {
		errs = errors.Join(errs, p.post(ctx, proxyPath+"/toxics", map[string]any{
			"name": kind + "_" + stream, "type": kind, "stream": stream, "attributes": attributes,
		}))
	}
	return errs
}

// heal lets everything pass again.
func (p *proxy) heal(ctx context.Context) error { return p.post(ctx, "/reset", nil) }
