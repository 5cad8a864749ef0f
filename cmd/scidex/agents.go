package main

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/verb"
)

func newAgentsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "Look agents up, and say how they are called and addressed",
		Long: `Agents are the people and programs that read and write. One is known in the scopes
where it was seen, as a writer or a member. Its roles are what it is addressed as;
what it may do, scidex scopes says.`,
		Example: `  scidex agents get @ada
  scidex agents list --role citation-reviewer
  scidex agents update --handle ada --title "Ada L."`,
	}
	cmd.AddCommand(newAgentsGetCmd(), newAgentsListCmd(), newAgentsResolveCmd(), newAgentsUpdateCmd(), newAgentsRegisterCmd())
	return cmd
}

func newAgentsGetCmd() *cobra.Command {
	var f verbFlags
	cmd := &cobra.Command{
		Use:   "get [AGENT]",
		Short: "Show an agent by its id or @handle, or yourself",
		Long:  `A former handle leads to the agent that had it first.`,
		Example: `  scidex agents get
  scidex agents get @ada
  scidex agents get did:plc:ada --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var in verb.AgentsGetRequest
			if len(args) == 1 {
				in.Agent = args[0]
			}
			return runVerb(cmd, &f, verb.AgentsGet, in, func(w io.Writer, out verb.AgentResponse) {
				showAgent(w, &out.Agent)
				if out.RedirectedFrom != "" {
					cells(w, "redirected from", out.RedirectedFrom)
				}
			})
		},
	}
	f.add(cmd)
	return cmd
}

func showAgent(w io.Writer, a *verb.Agent) {
	cells(w, "id", a.ID)
	cells(w, "kind", a.Kind)
	cells(w, "handle", handleOf(a.Handle))
	former := make([]string, len(a.FormerHandles))
	for i, h := range a.FormerHandles {
		former[i] = handleOf(h)
	}
	cells(w, "former handles", strings.Join(former, ", "))
	cells(w, "title", a.Title)
	cells(w, "roles", strings.Join(a.Roles, ", "))
	cells(w, "may delegate", strconv.FormatBool(a.MayDelegate))
	cells(w, "first seen", dateOf(a.CreatedAt))
	cells(w, "updated", dateOf(a.UpdatedAt))
}

func handleOf(handle string) string {
	if handle == "" {
		return ""
	}
	return "@" + handle
}

func newAgentsListCmd() *cobra.Command {
	var f verbFlags
	var in verb.AgentsListRequest
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the agents that you may know of, by id",
		Example: `  scidex agents list
  scidex agents list --role citation-reviewer --kind ai_local
  scidex agents list --limit 200 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runVerb(cmd, &f, verb.AgentsList, in, func(w io.Writer, out verb.AgentsListResponse) {
				cells(w, "AGENT", "KIND", "HANDLE", "ROLES", "TITLE")
				for _, a := range out.Agents {
					cells(w, a.ID, a.Kind, handleOf(a.Handle), strings.Join(a.Roles, ","), a.Title)
				}
				moreLine(cmd, out.NextCursor)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.Role, "role", "", "only agents that are addressed by this role")
	cmd.Flags().StringVar(&in.Kind, "kind", "", "only agents of this kind: "+strings.Join(verb.ActorKinds, ", "))
	addPage(cmd, &in.Limit, &in.Cursor)
	return cmd
}

func addPage(cmd *cobra.Command, limit *int, cursor *string) {
	cmd.Flags().IntVar(limit, "limit", verb.DefaultPage, "how many to list, 1 to "+strconv.Itoa(verb.MaxPage))
	cmd.Flags().StringVar(cursor, "cursor", "", "where to go on, as the list before said")
}

func newAgentsResolveCmd() *cobra.Command {
	var f verbFlags
	cmd := &cobra.Command{
		Use:   "resolve RECIPIENT",
		Short: "Show which agents a recipient means",
		Long: `A recipient is agent:ID, @HANDLE, agents:role:ROLE, @ROLE, group:ID or agents:* for
everyone. Where a handle and a role have one name, @NAME means the handle.`,
		Example: `  scidex agents resolve @ada
  scidex agents resolve agents:role:citation-reviewer
  scidex agents resolve group:g-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runVerb(cmd, &f, verb.AgentsResolve, verb.AgentsResolveRequest{Recipient: args[0]}, func(w io.Writer, out verb.AgentsResolveResponse) {
				for _, agent := range out.Agents {
					cells(w, agent)
				}
				if out.Everyone {
					cells(w, "everyone in the scope")
				}
				if out.RedirectedFrom != "" {
					cmd.PrintErrf("%s is a former handle.\n", printable(out.RedirectedFrom))
				}
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newAgentsUpdateCmd() *cobra.Command {
	var f verbFlags
	var in verb.AgentsUpdateRequest
	var handle, title string
	var roles []string
	var delegate bool
	cmd := &cobra.Command{
		Use:   "update [AGENT]",
		Short: "Change how you, or as an admin any agent, are called and addressed",
		Long: `What is not given stays as it is. A handle belongs to its first agent for good: the
one before leads to the agent still, and nobody else can take it. An admin alone
says who may delegate, takes a handle away (--handle "") and gives the name of a
permission as a role or handle.`,
		Example: `  scidex agents update --handle ada --title "Ada L."
  scidex agents update --roles citation-reviewer,dedupe-steward
  scidex agents update bot-7 --may-delegate=false`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				in.Agent = args[0]
			}
			given := cmd.Flags().Changed
			if given("handle") {
				in.Handle = new(strings.TrimPrefix(handle, "@"))
			}
			if given("title") {
				in.Title = &title
			}
			if given("roles") {
				in.Roles = append([]string{}, roles...)
			}
			if given("may-delegate") {
				in.MayDelegate = &delegate
			}
			if in.Handle == nil && in.Title == nil && in.Roles == nil && in.MayDelegate == nil {
				return &exitError{2, errors.New("give what to change: --handle, --title, --roles or --may-delegate")}
			}
			return runVerb(cmd, &f, verb.AgentsUpdate, in, showAgentResult)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&handle, "handle", "", "lower-case letters, digits, - and _")
	cmd.Flags().StringVar(&title, "title", "", "one line")
	cmd.Flags().StringSliceVar(&roles, "roles", nil, `all that the agent is to be addressed as; "" for none`)
	cmd.Flags().BoolVar(&delegate, "may-delegate", false, "whether others may act for the agent")
	return cmd
}

func showAgentResult(w io.Writer, out verb.AgentResult) {
	showAgent(w, &out.Agent)
	if out.Idempotency == verb.IdempotencyDeduplicated {
		cells(w, "written", "nothing: it was so before")
	}
}

func newAgentsRegisterCmd() *cobra.Command {
	var f verbFlags
	var in verb.AgentsRegisterRequest
	cmd := &cobra.Command{
		Use:   "register ID",
		Short: "Make an agent known in commons before it writes",
		Long:  `An admin in commons registers agents. Others become known by their first write.`,
		Example: `  scidex agents register citation-bot --kind ai_local --title "Checks citations"
  scidex agents register did:plc:ada --handle ada`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.ID, in.Handle = args[0], strings.TrimPrefix(in.Handle, "@")
			return runVerb(cmd, &f, verb.AgentsRegister, in, showAgentResult)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.Kind, "kind", "human", "kind of agent: "+strings.Join(verb.ActorKinds, ", "))
	cmd.Flags().StringVar(&in.Title, "title", "", "one line")
	cmd.Flags().StringVar(&in.Handle, "handle", "", "lower-case letters, digits, - and _")
	return cmd
}
