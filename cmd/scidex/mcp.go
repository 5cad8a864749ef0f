package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/mcp"
)

func newMCPCmd() *cobra.Command {
	var r remoteFlags
	var names string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Offer a hub or node to an agent, over standard input and output",
		Long: `Speaks the Model Context Protocol on standard input and output: an agent's program
starts it and gets the verbs as tools, artifacts and schemas as resources, and prompts.
What the token may do, the agent may do. Hubs and nodes offer the same over HTTP at
/mcp. docs/MCP.md has entries for the configuration of clients.

Diagnostics go to standard error.`,
		Example: `  SCIDEX_TOKEN=… scidex mcp --hub http://127.0.0.1:7172
  scidex mcp --mcp-names underscore     # for clients that refuse dots in names`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if names != string(mcp.Dots) && names != string(mcp.Underscores) {
				return &exitError{2, errors.New("--mcp-names: give dot or underscore")}
			}
			client, err := r.client()
			if err != nil {
				return err
			}
			server := mcp.New(mcp.Config{
				Verbs: registry().Verbs(), Version: version(), Names: mcp.Names(names),
				Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
				Call: func(ctx context.Context, name string, request json.RawMessage) (answer json.RawMessage, err error) {
					return answer, client.Invoke(ctx, name, request, &answer)
				},
			})
			if err := mcp.ServeStdio(cmd.Context(), server); err != nil && cmd.Context().Err() == nil {
				return err
			}
			return nil // it was told to stop, or the client is done
		},
	}
	r.add(cmd)
	cmd.Flags().StringVar(&names, "mcp-names", string(mcp.Dots), "how tools are named: dot (scidex.messages.send) or underscore")
	return cmd
}
