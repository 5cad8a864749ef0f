package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

func newTokenCmd() *cobra.Command {
	cmd := newTokenIssueCmd("token")
	cmd.AddCommand(newTokenIssueCmd("issue"), newTokenInspectCmd(), newTokenRevokeCmd())
	return cmd
}

func newTokenIssueCmd(use string) *cobra.Command {
	var d databaseFlags
	var l logFlags
	var claims verb.Claims
	var audience, behalf []string
	var ttl time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   use,
		Short: "Make a token for an agent, signed with the hub's key",
		Long: `Prints a token to standard output. Whoever holds it acts as the agent until it
ends: keep it secret. The hub's database is needed, the hub itself is not.`,
		Example: `  scidex token --sub ada --permissions contributor --managed --data ./data/hub
  scidex token --sub helper --kind ai_local --on-behalf-of ada --scopes none --managed
  export SCIDEX_TOKEN=$(scidex token --sub loader --kind ai_local --permissions admin --ttl 1h --database-url "$DATABASE_URL")`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if claims.Subject == "" {
				return &exitError{2, errors.New("give --sub, the id of the agent")}
			}
			if ttl <= 0 || ttl > 366*24*time.Hour {
				return &exitError{2, errors.New("--ttl is more than 0 and at most 366 days")}
			}
			claims.Audience = audience
			for _, agent := range behalf {
				claims.DelegationChain = append(claims.DelegationChain, artifact.DelegationStep{ActorID: agent})
			}
			var err error
			if claims.Scopes, err = scopesClaim(claims.Scopes); err != nil {
				return err
			}
			if err := claims.Validate(); err != nil {
				return &exitError{2, err}
			}
			return d.with(cmd.Context(), &l, func(ctx context.Context, db *database) error {
				if len(behalf) > 0 {
					if err := hub.MayDelegate(ctx, db.Pool, behalf); err != nil {
						return fmt.Errorf("--on-behalf-of: %w", err)
					}
				}
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
	f.StringSliceVar(&claims.Permissions, "permissions", []string{verb.Viewer}, "what the token allows in commons: "+strings.Join(verb.Permissions, ", "))
	f.StringSliceVar(&claims.Scopes, "scopes", nil, "scopes the token is limited to beside commons, or none; absent for all of the agent's")
	f.StringSliceVar(&audience, "audience", []string{verb.Audience}, "who takes the token: scidex for every hub and node, node:ID for one node")
	f.StringVar(&claims.SessionID, "session", "", "id of the session; made when empty")
	f.StringVar(&claims.ParentSessionID, "parent-session", "", "id of the session that began this one")
	f.StringSliceVar(&behalf, "on-behalf-of", nil, "agents that the work was handed on by, the first of them first; each must be allowed to delegate")
	f.StringVar(&claims.TaskID, "task", "", "id of the task the token is for")
	f.DurationVar(&ttl, "ttl", 24*time.Hour, "how long the token holds")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// scopesClaim returns the claim for the value of --scopes, of which nil was not
// given.
func scopesClaim(given []string) ([]string, error) {
	switch {
	case given == nil:
		return nil, nil
	case len(given) == 1 && given[0] == "none":
		return []string{}, nil
	case len(given) == 0 || slices.Contains(given, "none"):
		return nil, &exitError{2, errors.New("--scopes lists scopes, or is none alone for commons only; leave it out for all of the agent's")}
	}
	return given, nil
}

func newTokenInspectCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect [-]",
		Short: "Print what a token says, without verifying it",
		Long: `Reads a token from SCIDEX_TOKEN, or from standard input when that is not set or -
is given, and prints its header and claims. Its signature is not checked: only a
hub or node can tell whether it counts. The token itself is not printed.`,
		Example: `  scidex token inspect
  scidex token inspect - < token.txt
  scidex token inspect --json | jq .claims.scopes`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "-" { // it may be a token: it is not repeated
				return &exitError{2, errors.New("a token is not given as an argument, where others can see it; give it on standard input or as SCIDEX_TOKEN")}
			}
			text := os.Getenv("SCIDEX_TOKEN")
			if text == "" || len(args) == 1 {
				raw, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 64<<10))
				if err != nil {
					return fmt.Errorf("read the token: %w", err)
				}
				text = string(raw)
			}
			claims := jwt.MapClaims{}
			t, _, err := jwt.NewParser(jwt.WithJSONNumber()).ParseUnverified(strings.TrimSpace(text), claims)
			if err != nil {
				return &exitError{1, errors.New("that is no token: it has three parts of base64url, of which the first two are JSON")}
			}
			return printToken(cmd.OutOrStdout(), t, claims, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printToken(w io.Writer, t *jwt.Token, claims jwt.MapClaims, asJSON bool) error {
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return &exitError{1, errors.New("the token says not when it ends: no hub or node takes it")}
	}
	left := time.Until(expires.Time).Round(time.Second)
	if asJSON {
		return writeJSON(w, map[string]any{
			"header": t.Header, "claims": claims, "expires_at": utc(expires.Time), "expired": left <= 0, "verified": false,
		})
	}
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, part := range []map[string]any{t.Header, claims} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			value, err := json.Marshal(part[name])
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\t%s\n", strconv.Quote(name), value)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if left <= 0 {
		return say(w, fmt.Sprintf("It ended %s ago, at %s. The signature was not checked.", -left, utc(expires.Time)))
	}
	return say(w, fmt.Sprintf("It ends in %s, at %s. The signature was not checked.", left, utc(expires.Time)))
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
