package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/node"
)

const defaultNodeAddr = "127.0.0.1:7172"

func newNodeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a lab's replica, or check it",
		Example: `  scidex node join 'http://127.0.0.1:7171#scidex-join-…' --data ./data/lab-a
  scidex node run --data ./data/lab-a
  scidex node verify --data ./data/lab-a`,
	}
	cmd.AddCommand(newNodeJoinCmd(), newNodeRunCmd(), newNodeVerifyCmd(), newNodeRebuildCmd())
	return cmd
}

// nodeFlags are the flags of commands on a node's directory.
type nodeFlags struct {
	remoteFlags
	logFlags
	data string
}

func (n *nodeFlags) addAll(cmd *cobra.Command) {
	n.remoteFlags.add(cmd)
	cmd.Flags().Lookup("hub").Usage = "URL of the hub; an enrolled node knows it"
	n.logFlags.add(cmd)
	cmd.Flags().StringVar(&n.data, "data", defaultDataDir("node"), "directory of the replica")
}

// config checks the flags and returns what a node needs of them. An enrolled node
// is what it is enrolled as, whatever token the environment holds for other
// commands.
func (n *nodeFlags) config(cmd *cobra.Command) (node.Config, error) {
	log, err := n.logger()
	if err != nil {
		return node.Config{}, err
	}
	c := node.Config{Dir: n.data, Log: log, Version: version()}
	if !cmd.Flags().Changed("token") {
		if c.Identity, err = node.ReadIdentity(n.data); err == nil {
			if c.HubURL = c.Identity.HubURL; cmd.Flags().Changed("hub") {
				c.HubURL = strings.TrimSuffix(n.url, "/") // it moved
			}
			return c, nil
		} else if !errors.Is(err, node.ErrNotEnrolled) {
			return c, err
		}
	}
	if n.token == "" {
		return c, &exitError{2, fmt.Errorf("no node is enrolled in %s: scidex node join enrols it; or follow as an agent with --token", n.data)}
	}
	client, err := n.client()
	if err != nil {
		return c, err
	}
	c.HubURL, c.Token = client.URL, client.Token
	return c, nil
}

func newNodeRunCmd() *cobra.Command {
	var n nodeFlags
	var addr string
	var doors doorFlags
	var models modelFlags
	var offlineAuthMax, selfCheck time.Duration
	var noIntrospection bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Follow a hub and serve GraphQL, subscriptions and the read verbs",
		Example: `  scidex node run --hub http://127.0.0.1:7171 --token "$TOKEN" --data ./data/lab-1
  SCIDEX_HUB=http://hub.lab:7171 SCIDEX_TOKEN=… scidex node run --addr 127.0.0.1:7172`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := n.config(cmd)
			if err != nil {
				return err
			}
			parsed, err := doors.parse()
			if err != nil {
				return err
			}
			c.Origins, c.TrustedProxies, c.Issuers = parsed.origins, parsed.proxies, parsed.issuers
			c.Limits, c.AnonymousRead, c.OfflineAuthMax, c.Introspection = doors.limits, doors.open, offlineAuthMax, !noIntrospection
			c.SelfCheck = selfCheck
			if c.Embeddings, c.Rerank, err = models.clients(); err != nil {
				return err
			}
			if err := makeDataDir(n.data, 0o700); err != nil {
				return err
			}
			unlock, err := postgres.Lock(n.data)
			if err != nil {
				return err
			}
			defer unlock()
			l, err := listen(cmd.Context(), addr, "addr")
			if err != nil {
				return err
			}
			return runNode(cmd.Context(), c, l)
		},
	}
	n.addAll(cmd)
	cmd.Flags().StringVar(&addr, "addr", defaultNodeAddr, "address to serve on")
	doors.add(cmd)
	models.addNode(cmd)
	cmd.Flags().DurationVar(&offlineAuthMax, "offline-auth-max", 24*time.Hour, "how long after the last word of the hub members still read private scopes")
	cmd.Flags().DurationVar(&selfCheck, "self-check", 6*time.Hour, "how often, about, the replica is compared with the hub and what differs is mended; 0 is never")
	cmd.Flags().BoolVar(&noIntrospection, "no-introspection", false, "refuse GraphQL introspection")
	return cmd
}

// runNode serves a node until ctx ends.
func runNode(ctx context.Context, c node.Config, l net.Listener) (err error) {
	if err := node.Recover(c.Dir); err != nil {
		return errors.Join(err, l.Close())
	}
	registry, metrics := newMetrics()
	c.Metrics = registry
	n, err := node.Open(ctx, c)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	c.Log.InfoContext(ctx, "node serves", "url", urlOf(l), "hub", c.HubURL, "data", c.Dir)
	return serveNode(ctx, n, l, serveOptions{metrics: metrics, log: c.Log})
}

func serveNode(ctx context.Context, n *node.Node, l net.Listener, o serveOptions) error {
	srv := n.Server(o.metrics)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return n.ServeControl(ctx) })
	g.Go(func() error { return serve(ctx, l, srv, o.log, srv.Shutdown) })
	return g.Wait()
}

func newNodeRebuildCmd() *cobra.Command {
	var data string
	var l logFlags
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Throw the replica away, so that the next run copies the hub anew",
		Long: `A replica is a copy: nothing is lost with it. One that is being made goes too. The
node must not be running. It is seldom needed: a node copies the hub anew by itself
when it cannot go on from what it holds.`,
		Example: `  scidex node rebuild --data ./data/lab-1 && scidex node run --data ./data/lab-1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := l.logger()
			if err != nil {
				return err
			}
			if _, err := os.Stat(data); err != nil {
				return fmt.Errorf("no replica in %s", data)
			}
			unlock, err := postgres.Lock(data)
			if err != nil {
				return err
			}
			defer unlock()
			found, err := node.Remove(data)
			if err != nil {
				return fmt.Errorf("remove the replica: %w", err)
			}
			if !found {
				return fmt.Errorf("no replica in %s", data)
			}
			log.InfoContext(cmd.Context(), "replica removed", "data", data)
			return nil
		},
	}
	l.add(cmd)
	cmd.Flags().StringVar(&data, "data", defaultDataDir("node"), "directory of the replica")
	return cmd
}
