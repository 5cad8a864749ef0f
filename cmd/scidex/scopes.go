package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/verb"
)

func newScopesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scopes",
		Short: "Make private scopes and say who may do what in them",
		Long: `A private scope is what a lab keeps to itself: only its members see that it is
there. In commons a token's own permissions count.`,
		Example: `  scidex scopes create lab-a --title "Lab A"
  scidex scopes grant lab-a ada --permissions contributor,reviewer
  scidex scopes members lab-a`,
	}
	cmd.AddCommand(newScopesCreateCmd(), newScopesListCmd(), newScopesMembersCmd(), newScopesGrantCmd(), newScopesRevokeCmd())
	return cmd
}

func newScopesCreateCmd() *cobra.Command {
	var f verbFlags
	var in verb.ScopesCreateRequest
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Make a private scope",
		Long: `An admin in commons makes scopes. The id is lower-case letters, digits and hyphens;
ids of what is in the scope begin with it.`,
		Example: `  scidex scopes create lab-a --title "Lab A"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.ID = args[0]; in.Title == "" {
				in.Title = in.ID
			}
			return runVerb(cmd, &f, verb.ScopesCreate, in, func(w io.Writer, out verb.ScopeResult) {
				cells(w, "SCOPE", "TITLE", "MADE")
				cells(w, out.Scope.ID, out.Scope.Title, dateOf(out.Scope.CreatedAt))
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.Title, "title", "", "one line; absent: the id")
	return cmd
}

func newScopesListCmd() *cobra.Command {
	var f verbFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the scopes that you may see, with your permissions in each",
		Example: `  scidex scopes list
  scidex scopes list --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runVerb(cmd, &f, verb.ScopesList, verb.ScopesListRequest{}, func(w io.Writer, out verb.ScopesListResponse) {
				cells(w, "SCOPE", "PERMISSIONS", "MADE", "TITLE")
				for _, s := range out.Scopes {
					cells(w, s.ID, strings.Join(s.Roles, ","), dateOf(s.CreatedAt), s.Title)
				}
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newScopesMembersCmd() *cobra.Command {
	var f verbFlags
	var in verb.ScopesMembersRequest
	cmd := &cobra.Command{
		Use:   "members SCOPE",
		Short: "List the members of a scope and their permissions",
		Example: `  scidex scopes members lab-a
  scidex scopes members lab-a --limit 200 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Scope = args[0]
			return runVerb(cmd, &f, verb.ScopesMembers, in, func(w io.Writer, out verb.ScopesMembersResponse) {
				cells(w, "AGENT", "PERMISSIONS", "GRANTED", "BY")
				for _, m := range out.Members {
					cells(w, m.Agent, strings.Join(m.Roles, ","), dateOf(m.GrantedAt), m.GrantedBy)
				}
				moreLine(cmd, out.NextCursor)
			})
		},
	}
	f.add(cmd)
	addPage(cmd, &in.Limit, &in.Cursor)
	return cmd
}

func newScopesGrantCmd() *cobra.Command {
	var f verbFlags
	var in verb.ScopesGrantRequest
	cmd := &cobra.Command{
		Use:   "grant SCOPE AGENT",
		Short: "Give an agent permissions in a scope, in place of those it has",
		Long: `An admin of the scope or of commons grants. The permissions that are given are all
that the agent has in the scope from then on.`,
		Example: `  scidex scopes grant lab-a ada --permissions contributor,reviewer
  scidex scopes grant lab-a citation-bot --kind ai_local --permissions viewer --permissions contributor`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.Scope, in.Agent = args[0], args[1]; len(in.Roles) == 0 {
				return &exitError{2, errors.New("give --permissions, among " + strings.Join(verb.Permissions, ", "))}
			}
			return runVerb(cmd, &f, verb.ScopesGrant, in, showMembership)
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&in.Roles, "permissions", nil, "all that the agent may do in the scope: "+strings.Join(verb.Permissions, ", "))
	cmd.Flags().StringVar(&in.AgentKind, "kind", "", "kind of an agent that is new here, human when absent: "+strings.Join(verb.ActorKinds, ", "))
	return cmd
}

func newScopesRevokeCmd() *cobra.Command {
	var f verbFlags
	cmd := &cobra.Command{
		Use:     "revoke SCOPE AGENT",
		Short:   "End an agent's membership of a scope",
		Long:    `It counts at once: streams that the agent reads of the scope end.`,
		Example: `  scidex scopes revoke lab-a ada`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runVerb(cmd, &f, verb.ScopesRevoke, verb.ScopesRevokeRequest{Scope: args[0], Agent: args[1]}, showMembership)
		},
	}
	f.add(cmd)
	return cmd
}

func showMembership(w io.Writer, out verb.MembershipResult) {
	cells(w, "SCOPE", "AGENT", "PERMISSIONS")
	cells(w, out.Scope, out.Agent, strings.Join(out.Roles, ","))
}
