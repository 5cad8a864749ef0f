package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/load"
	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/sample"
	"github.com/scidex-ai/substrate/verb"
)

// demoTokenTTL is how long the tokens of a demo hold.
const demoTokenTTL = 7 * 24 * time.Hour

type demoFlags struct {
	database databaseFlags
	hubAddr  string
	nodeAddr string
	asJSON   bool
	noSample bool
	origins  []string
	logFlags
}

func newDemoCmd() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a hub, a node and a sample in one process, and show what happens",
		Long: `Starts a private PostgreSQL (or uses --database-url), a hub and one lab node, loads
a small sample on hypotheses of Alzheimer's disease, prints where everything is
and then shows each event as the node's subscribers get it. Ctrl-C stops all of
it; a second start on the same --data goes on with the same data.`,
		Example: `  scidex demo
  scidex demo --data ./data/demo --no-sample
  scidex demo --json --data ./data/demo --hub-addr 127.0.0.1:0 --node-addr 127.0.0.1:0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.InOrStdin())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.database.data, "data", defaultDataDir("demo"), "directory of all data")
	fl.StringVar(&f.database.url, "database-url", "", "URL of your own PostgreSQL (14 or later); it must be empty or a demo's")
	fl.StringVar(&f.database.binDir, "postgres-bin", "", "where initdb and postgres are; found by itself when empty")
	fl.StringVar(&f.hubAddr, "hub-addr", defaultHubAddr, "address of the hub; port 0 for a free one")
	fl.StringVar(&f.nodeAddr, "node-addr", defaultNodeAddr, "address of the node; port 0 for a free one")
	fl.BoolVar(&f.asJSON, "json", false, "for scripts: print one line of JSON when ready; stop on SIGTERM or when standard input closes")
	fl.BoolVar(&f.noSample, "no-sample", false, "begin without the sample")
	fl.StringSliceVar(&f.origins, "origin", nil, "web origin whose pages may use the node, such as http://localhost:5173; may be given many times")
	f.logFlags.add(cmd)
	_ = fl.Set("log-level", "warn") // the events are what a person wants to see
	return cmd
}

// ready is what a script is told.
type ready struct {
	Hub         string            `json:"hub"`
	Node        string            `json:"node"`
	GraphQL     string            `json:"graphql"`
	WS          string            `json:"ws"`
	DatabaseURL string            `json:"database_url"`
	Tokens      map[string]string `json:"tokens"`
}

func (f *demoFlags) run(ctx context.Context, out io.Writer, in io.Reader) (err error) {
	log, err := f.logger()
	if err != nil {
		return err
	}
	if f.asJSON {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		watchInput(in, stop)
	} else {
		_, _ = fmt.Fprintf(out, "Starting in %s …\n", f.database.data) // the demo serves without a terminal too
	}
	// The listeners come first: a taken address is known before anything starts.
	hubListener, err := listen(ctx, f.hubAddr, "hub-addr")
	if err != nil {
		return err
	}
	defer hubListener.Close()
	nodeListener, err := listen(ctx, f.nodeAddr, "node-addr")
	if err != nil {
		return err
	}
	defer nodeListener.Close()
	db, err := f.database.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close(ctx)) }()
	if _, err := hub.Init(ctx, db.Pool); err != nil {
		return err
	}
	d := &demo{flags: f, log: log, out: out, db: db, hubListener: hubListener, nodeListener: nodeListener}
	return d.serve(ctx)
}

// watchInput calls stop when standard input closes. A terminal, a file or
// /dev/null is no sign of a script that watches over the program.
func watchInput(in io.Reader, stop func()) {
	file, ok := in.(*os.File)
	if !ok {
		return
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, file) // its end is the sign, whatever it was
		stop()
	}()
}

// A demo is a hub and a node in one process.
type demo struct {
	flags                     *demoFlags
	log                       *slog.Logger
	out                       io.Writer
	db                        *database
	hubListener, nodeListener net.Listener
	hub                       *hub.Hub
	ready                     ready
}

func (d *demo) serve(ctx context.Context) (err error) {
	hubMetrics, serveHubMetrics := newMetrics()
	d.hub, err = hub.Open(ctx, hub.Config{
		DB: d.db.Pool, Log: d.log, Metrics: hubMetrics, NodeURL: urlOf(d.nodeListener), Version: version(),
	})
	if err != nil {
		return err
	}
	key := d.hub.SigningKey()
	tokens, err := signTokens(key, demoTokenTTL, map[string][]string{
		"viewer": {verb.Viewer}, "contributor": {verb.Contributor}, "reviewer": {verb.Reviewer}, "admin": {verb.Viewer, verb.Admin},
	})
	if err != nil {
		return err
	}
	nodeDir := filepath.Join(d.flags.database.data, "node")
	if err := makeDataDir(nodeDir, 0o700); err != nil {
		return err
	}
	unlock, err := postgres.Lock(nodeDir) // against a second node, or a rebuild, on it
	if err != nil {
		return err
	}
	defer unlock()
	// The node stops before the hub, and the hub before its database, so that
	// nothing is cut off in the middle.
	hubCtx, stopHub := context.WithCancel(context.WithoutCancel(ctx))
	hubDone := make(chan error, 1)
	go func() {
		hubDone <- serveHub(hubCtx, d.hub, d.hubListener, serveOptions{metrics: serveHubMetrics, log: d.log})
	}()
	defer func() {
		stopHub()
		err = errors.Join(err, <-hubDone)
	}()
	id, err := d.enrol(ctx, nodeDir)
	if err != nil {
		return err
	}
	if err := node.Recover(nodeDir); err != nil {
		return err
	}
	nodeMetrics, serveNodeMetrics := newMetrics()
	n, err := node.Open(ctx, node.Config{
		Dir: nodeDir, HubURL: urlOf(d.hubListener), Identity: id,
		Log: d.log, Metrics: nodeMetrics, Introspection: true, Origins: d.flags.origins, Version: version(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	d.ready = ready{
		Hub: urlOf(d.hubListener), Node: urlOf(d.nodeListener), GraphQL: urlOf(d.nodeListener) + "/graphql",
		WS: "ws://" + d.nodeListener.Addr().String() + "/graphql", DatabaseURL: d.db.url, Tokens: tokens,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.db.watch(ctx) })
	g.Go(func() error {
		return serveNode(ctx, n, d.nodeListener, serveOptions{metrics: serveNodeMetrics, log: d.log})
	})
	g.Go(func() error { return d.show(ctx, n) })
	return g.Wait()
}

// demoLab is the private scope of the demo, in which everyone but the viewer is a
// member.
const demoLab = "lab-1"

// enrol makes the demo's lab and enrols the node for it, as a lab's operator does
// with hub invite and node join. A second time it changes nothing.
func (d *demo) enrol(ctx context.Context, nodeDir string) (*node.Identity, error) {
	ctx = verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: "demo-admin", Kind: "human"}, Permissions: []verb.Permission{verb.Admin},
		SessionID: uuid.NewString(), RequestID: uuid.NewString(), Now: artifact.Now(),
	})
	verbs := d.hub.Verbs()
	_, err := verb.ScopesCreate.Call(ctx, verbs, verb.ScopesCreateRequest{ID: demoLab, Title: "Lab 1"})
	if err != nil && artifact.AsError(err).Reason != artifact.ReasonExists {
		return nil, fmt.Errorf("make the lab: %w", err)
	}
	for _, role := range []verb.Permission{verb.Contributor, verb.Reviewer, verb.Admin} {
		_, err := verb.ScopesGrant.Call(ctx, verbs, verb.ScopesGrantRequest{Scope: demoLab, Agent: "demo-" + role, Roles: []verb.Permission{role}})
		if err != nil {
			return nil, fmt.Errorf("make the lab's members: %w", err)
		}
	}
	id, err := node.ReadIdentity(nodeDir)
	if err == nil && id.HubID == d.hub.HubID() {
		return id, nil
	} else if err != nil && !errors.Is(err, node.ErrNotEnrolled) {
		return nil, err
	}
	if err := os.Remove(filepath.Join(nodeDir, node.IdentityFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // it was another hub's
	}
	invite, err := verb.NodesInvite.Call(ctx, verbs, verb.NodesInviteRequest{Lab: "Lab 1", Scopes: []string{demoLab}})
	if err != nil {
		return nil, fmt.Errorf("invite the node: %w", err)
	}
	return node.Join(ctx, nodeDir, urlOf(d.hubListener), invite.Code, nil)
}

// show loads the sample, waits for the node to have it, says where everything is
// and shows events until ctx ends.
func (d *demo) show(ctx context.Context, n *node.Node) error {
	if !d.flags.noSample {
		if err := d.loadSample(ctx); err != nil {
			return err
		}
	}
	head, err := d.hub.Head(ctx)
	if err != nil {
		return err
	}
	if err := n.WaitApplied(ctx, head); err != nil {
		return nil //nolint:nilerr // stopped before it was ready
	}
	if d.flags.asJSON {
		return writeJSON(d.out, d.ready)
	}
	dir, err := filepath.Abs(d.flags.database.data)
	if err != nil {
		return err
	}
	if err := writeEnv(filepath.Join(dir, envFile), &d.ready); err != nil {
		return err
	}
	printTour(d.out, &d.ready, dir, head)
	if err := d.showEvents(ctx, n, head); err != nil {
		return err
	}
	return say(d.out, "\nStopping. The data stays in "+dir+": start again to go on, or remove it to begin anew.")
}

// loadSample loads the shipped sample. A second time it changes nothing.
func (d *demo) loadSample(ctx context.Context) error {
	ctx = verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: "demo-loader", Kind: "ai_local"}, Permissions: []string{verb.Contributor, verb.Admin},
		SessionID: uuid.NewString(), RequestID: uuid.NewString(), Now: artifact.Now(),
	})
	summary, err := load.Run(ctx, load.Config{
		Invoker: d.hub.Verbs(), Import: true,
		Inputs: []load.Input{{Name: "sample", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(sample.JSONL)), nil }}},
	})
	if err != nil {
		return fmt.Errorf("load the sample: %w", err)
	}
	if summary.RejectedLines > 0 {
		return fmt.Errorf("load the sample: %d lines were rejected", summary.RejectedLines)
	}
	return nil
}

// envFile is the name, in a demo's directory, of a shell script that sets the
// tokens.
const envFile = "demo.env"

// writeEnv writes the tokens where a shell can take them from, for the owner
// alone.
func writeEnv(path string, r *ready) error {
	text := fmt.Sprintf("export VIEWER=%s\nexport CONTRIBUTOR=%s\nexport REVIEWER=%s\nexport ADMIN=%s\nexport SCIDEX_HUB=%s\nexport SCIDEX_NODE=%s\n",
		r.Tokens["viewer"], r.Tokens["contributor"], r.Tokens["reviewer"], r.Tokens["admin"], r.Hub, r.Node)
	return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o600))
}

// printTour says where everything is, with three things to try.
func printTour(w io.Writer, r *ready, dir string, head artifact.Seq) {
	_, _ = fmt.Fprintf(w, `
  hub      %s      owns every write (verbs, feed)
  node     %s      a replica of it: reads, GraphQL, subscriptions
  graphql  %s
  ws       %s
  data     %s

In another terminal, take the tokens (7 days):

  . %s

1. Read from the node:

curl -s %s \
  -H "Authorization: Bearer $VIEWER" -H 'Content-Type: application/json' \
  -d '{"query":"{ artifacts(first:3) { nodes { ref title } } replica { phase lagEvents } }"}'

2. Follow the events (npm i graphql-ws ws):

node --input-type=module -e '
import { createClient } from "graphql-ws"; import ws from "ws";
const client = createClient({ url: "%s", webSocketImpl: ws,
  connectionParams: { authorization: "Bearer " + process.env.VIEWER } });
const query = "subscription { events { cursor events { eventId eventType ref } } }";
for await (const m of client.iterate({ query })) console.log(JSON.stringify(m.data));'

3. Write, and see the event arrive below:

curl -s %s/api/scidex/create \
  -H "Authorization: Bearer $CONTRIBUTOR" -H 'Content-Type: application/json' \
  -d '{"type":"hypothesis","title":"My first hypothesis",
       "content":{"statement":"Something worth testing"}}'

4. Write for the lab alone, and read it at the node. All but the viewer are members; with
$VIEWER it is not there. Its events are not below, which shows commons:

curl -s %s/api/scidex/create \
  -H "Authorization: Bearer $CONTRIBUTOR" -H 'Content-Type: application/json' \
  -d '{"type":"hypothesis","scope":"lab-1","id":"ours","title":"Ours","content":{"statement":"Not yet public"}}'
curl -s %s/api/scidex/get \
  -H "Authorization: Bearer $CONTRIBUTOR" -H 'Content-Type: application/json' -d '{"ref":"hypothesis:lab-1/ours"}'

The log is at seq %d. Events, as the node's subscribers get them (Ctrl-C stops):

`, r.Hub, r.Node, r.GraphQL, r.WS, dir, filepath.Join(dir, envFile), strings.TrimSpace(r.GraphQL), r.WS, r.Hub, r.Hub, r.Node, head)
}

// showEvents prints the latest events and then each new one.
func (d *demo) showEvents(ctx context.Context, n *node.Node, head artifact.Seq) error {
	ctx = verb.WithCaller(ctx, &verb.Caller{Actor: artifact.Actor{ID: "demo", Kind: "ai_local"}, Permissions: []string{verb.Viewer}})
	const tail = 10
	events := n.Follow(max(head-tail, 0), nil)
	width := widthOf(d.out)
	for {
		page, err := events.Next(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped, as was asked
		} else if err != nil {
			return err
		}
		for _, e := range page.Events {
			line := fmt.Sprintf("%s  %7d  %-22s %s  by %s", e.At.Local().Format("15:04:05.000"), e.ID, e.Type, subject(e), e.Actor.ID)
			if err := say(d.out, fit(line, width)); err != nil {
				return err
			}
		}
	}
}

// subject says what an event is about: a link by its ends, which tell more than
// its id.
func subject(e artifact.Event) string {
	var link struct{ From, Predicate, To string }
	if json.Unmarshal(e.Payload, &link) == nil && link.Predicate != "" {
		if link.From == "" {
			link.From = unpinned(e.Ref)
		}
		return link.From + " " + link.Predicate + " " + link.To
	}
	return unpinned(e.Ref)
}

// fit cuts a line to a terminal's width; 0 is no terminal.
func fit(line string, width int) string {
	if r := []rune(line); width > 1 && len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return line
}

// widthOf returns the width of a terminal, 0 for anything else.
func widthOf(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func unpinned(text string) string {
	if ref, err := artifact.ParseRef(text); err == nil {
		return ref.Current().String()
	}
	return text
}
