package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

func newTokenCmd() *cobra.Command {
	var d databaseFlags
	var l logFlags
	var claims verb.Claims
	var ttl time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token for an agent, signed with the hub's key",
		Long: `Prints a token to standard output. Whoever holds it acts as the agent until it
ends: keep it secret. The hub's database is needed, the hub itself is not.`,
		Example: `  scidex token --sub ada --permissions contributor --managed --data ./data/hub
  export SCIDEX_TOKEN=$(scidex token --sub loader --kind ai_local --permissions admin --ttl 1h --database-url "$DATABASE_URL")`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if claims.Subject == "" {
				return &exitError{2, errors.New("give --sub, the id of the agent")}
			}
			if ttl <= 0 || ttl > 366*24*time.Hour {
				return &exitError{2, errors.New("--ttl is more than 0 and at most 366 days")}
			}
			if err := claims.Validate(); err != nil {
				return &exitError{2, err}
			}
			return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error {
				key, err := hub.SigningKey(ctx, db.Pool)
				if err != nil {
					return err
				}
				token, err := key.Sign(claims, ttl)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), map[string]any{
						"token": token, "expires_at": time.Now().Add(ttl).UTC().Format(time.RFC3339),
					})
				}
				return say(cmd.OutOrStdout(), token)
			})
		},
	}
	d.add(cmd)
	l.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&d.managed, "managed", false, "use the private PostgreSQL in the data directory")
	f.StringVar(&claims.Subject, "sub", "", "id of the agent")
	f.StringVar(&claims.ActorKind, "kind", "human", "kind of agent: "+strings.Join(verb.ActorKinds, ", "))
	f.StringSliceVar(&claims.Permissions, "permissions", []string{verb.Viewer}, "what the token allows: "+strings.Join(verb.Permissions, ", "))
	f.StringSliceVar(&claims.Scopes, "scopes", nil, "scopes the token is limited to; absent for all of the agent's")
	f.StringVar(&claims.TaskID, "task", "", "id of the task the token is for")
	f.DurationVar(&ttl, "ttl", 24*time.Hour, "how long the token holds")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// signTokens returns a token for each name, whose permissions are given.
func signTokens(key *verb.Key, ttl time.Duration, permissions map[string][]string) (map[string]string, error) {
	tokens := make(map[string]string, len(permissions))
	for name, p := range permissions {
		c := verb.Claims{ActorKind: "human", Permissions: p}
		c.Subject = "demo-" + name
		token, err := key.Sign(c, ttl)
		if err != nil {
			return nil, fmt.Errorf("sign a token for %s: %w", name, err)
		}
		tokens[name] = token
	}
	return tokens, nil
}
