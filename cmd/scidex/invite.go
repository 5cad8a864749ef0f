package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// asOperator runs f with the verbs of the hub whose database the flags name, as
// whoever may write that database: an admin.
func (d *databaseFlags) asOperator(ctx context.Context, l *logFlags, f func(context.Context, verb.Invoker) error) error {
	return d.with(ctx, l, func(ctx context.Context, db *database) error {
		h, err := hub.Open(ctx, hub.Config{DB: db.Pool, Version: version()})
		if err != nil {
			return err
		}
		ctx = verb.WithCaller(ctx, &verb.Caller{
			Actor: artifact.Actor{ID: "operator", Kind: "human"}, Permissions: []verb.Permission{verb.Admin},
			RequestID: uuid.NewString(), Now: artifact.Now(),
		})
		return f(ctx, h.Verbs())
	})
}

func newHubInviteCmd() *cobra.Command {
	var d databaseFlags
	var l logFlags
	var in verb.NodesInviteRequest
	var expires time.Duration
	var hubURL string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "invite",
		Short: "Make a one-time code by which a lab's node enrols",
		Long: `Prints the command that the lab runs. Whoever has the code can enrol one node, until
it ends: send it as you would a password. The hub's database is needed, the hub
itself is not.`,
		Example: `  scidex hub invite --lab "Lab A" --scopes lab-a --database-url "$DATABASE_URL" --hub-url https://hub.example`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.Lab == "" {
				return &exitError{2, errors.New("give --lab, the name of the lab")}
			}
			if !webURL(hubURL) {
				return &exitError{2, fmt.Errorf("--hub-url %q: give a URL such as http://%s", hubURL, defaultHubAddr)}
			}
			in.ExpiresSeconds = int(expires.Seconds())
			return d.asOperator(cmd.Context(), &l, func(ctx context.Context, verbs verb.Invoker) error {
				r, err := verb.NodesInvite.Call(ctx, verbs, in)
				if err != nil {
					return err
				}
				command := fmt.Sprintf("scidex node join '%s#%s' --data DIR", strings.TrimSuffix(hubURL, "/"), r.Code)
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), map[string]any{"code": r.Code, "command": command, "expires_at": r.ExpiresAt, "scopes": r.Scopes})
				}
				return say(cmd.OutOrStdout(), command)
			})
		},
	}
	d.add(cmd)
	l.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
	f.StringVar(&in.Lab, "lab", "", "name of the lab, for people")
	f.StringSliceVar(&in.Scopes, "scopes", nil, "private scopes that the node is to hold, beside commons")
	f.DurationVar(&expires, "expires", 24*time.Hour, "how long the code holds")
	f.StringVar(&hubURL, "hub-url", "http://"+defaultHubAddr, "URL at which the lab reaches the hub")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func newHubNodesCmd() *cobra.Command {
	var d databaseFlags
	var l logFlags
	var asJSON bool
	add := func(cmd *cobra.Command) *cobra.Command {
		d.add(cmd)
		l.add(cmd)
		cmd.Flags().BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
		cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
		return cmd
	}
	cmd := add(&cobra.Command{
		Use:   "nodes",
		Short: "List the enrolled nodes, or end an enrolment",
		Example: `  scidex hub nodes --database-url "$DATABASE_URL"
  scidex hub nodes revoke n-0192… --database-url "$DATABASE_URL"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.asOperator(cmd.Context(), &l, func(ctx context.Context, verbs verb.Invoker) error {
				r, err := verb.NodesList.Call(ctx, verbs, verb.NodesListRequest{})
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), r)
				}
				t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
				fmt.Fprintln(t, "NODE\tLAB\tSCOPES\tENROLLED\tLAST SEEN\tREVOKED")
				for _, n := range r.Nodes {
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", n.ID, n.Lab, strings.Join(n.Scopes, ","),
						n.EnrolledAt.Format(time.RFC3339), timeOrDash(n.LastSeenAt), timeOrDash(n.RevokedAt))
				}
				return t.Flush()
			})
		},
	})
	cmd.AddCommand(add(&cobra.Command{
		Use:     "revoke NODE",
		Short:   "End a node's enrolment at once",
		Example: `  scidex hub nodes revoke n-0192… --database-url "$DATABASE_URL"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.asOperator(cmd.Context(), &l, func(ctx context.Context, verbs verb.Invoker) error {
				r, err := verb.NodesRevoke.Call(ctx, verbs, verb.NodesRevokeRequest{ID: args[0]})
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), r)
				}
				return say(cmd.OutOrStdout(), "The node is fed no more, and no call that it forwards is taken. Its replica stays with the lab.")
			})
		},
	}))
	return cmd
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func newNodeJoinCmd() *cobra.Command {
	var data string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "join HUB-URL#CODE",
		Short: "Enrol a node at a hub by the code that its operator sent",
		Long: `Makes the node's key in --data, which never leaves it, and exchanges the code for an
enrolment. Joining again is safe. A code given as - is read from standard input, so
that it does not stand in the shell's history.`,
		Example: `  scidex node join 'https://hub.example#scidex-join-…' --data ./data/lab-a
  scidex node run --data ./data/lab-a`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[0]
			if text == "-" {
				if _, err := fmt.Fscan(cmd.InOrStdin(), &text); err != nil {
					return &exitError{2, errors.New("standard input holds no HUB-URL#CODE")}
				}
			}
			hubURL, code, ok := strings.Cut(text, "#")
			if hubURL = strings.TrimSuffix(hubURL, "/"); !ok || code == "" || !webURL(hubURL) {
				return &exitError{2, errors.New("give the whole of what hub invite printed: HUB-URL#CODE")}
			}
			id, err := node.Join(cmd.Context(), data, hubURL, code, nil)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), map[string]any{"node_id": id.NodeID, "lab": id.Lab, "scopes": id.Scopes, "hub_url": id.HubURL})
			}
			return say(cmd.OutOrStdout(), fmt.Sprintf("Enrolled as %s of %s, for %s. Start it: scidex node run --data %s", id.NodeID, id.Lab, strings.Join(id.Scopes, ", "), data))
		},
	}
	cmd.Flags().StringVar(&data, "data", defaultDataDir("node"), "directory of the node")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
