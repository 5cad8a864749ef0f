package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/verb"
)

func newTokenRevokeCmd() *cobra.Command {
	var f verbFlags
	var in verb.TokensRevokeRequest
	cmd := &cobra.Command{
		Use:   "revoke",
		Short: "End a token, or all of an agent's, before its time",
		Long: `Without a name it is the token that the command calls with which ends. Another's
is an admin's to end. Hub and nodes refuse what was ended from then on, and streams
that were opened with it end. scidex token inspect shows a token's id, as jti.`,
		Example: `  scidex token revoke
  scidex token revoke --token-id 0192f0c1-7d0e-7c55-9a83-2f6a4c1d2e3f
  scidex token revoke --token-id abc --issuer https://id.example
  scidex token revoke --agent ada`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case in.TokenID != "" && in.Agent != "":
				return &exitError{2, errors.New("give --token-id or --agent, not both")}
			case in.Issuer != "" && in.TokenID == "":
				return &exitError{2, errors.New("--issuer goes with --token-id")}
			}
			return runVerb(cmd, &f, verb.TokensRevoke, in, func(w io.Writer, out verb.RevocationResult) {
				what := "The token that this was called with"
				if in.TokenID != "" {
					what = "Token " + in.TokenID
				} else if in.Agent != "" {
					what = "Every token of " + in.Agent + " up to now"
				}
				cells(w, what+" counts no more.")
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.TokenID, "token-id", "", "id of a token: its jti")
	cmd.Flags().StringVar(&in.Issuer, "issuer", "", "iss of that token; absent for the hub's own")
	cmd.Flags().StringVar(&in.Agent, "agent", "", "id of an agent, all of whose tokens up to now are to end")
	return cmd
}
