package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func newReviewCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "review",
		Short: "Decide on proposed changes: list, show, revise, approve and reject them",
		Long: `What is created or updated of a type whose changes wait for review is a candidate:
nothing but these commands knows of it until a reviewer approves it. Each decision names
the version of the candidate that was read, and counts for no other.`,
		Example: `  scidex review list
  scidex review show CANDIDATE
  scidex review approve CANDIDATE --expected-version 1
  scidex review reject CANDIDATE --expected-version 1 --reason "There is one already"`,
	}
	cmd.AddCommand(newReviewListCmd(), newReviewShowCmd(), newReviewReviseCmd(), newReviewApproveCmd(), newReviewRejectCmd())
	return cmd
}

func newReviewListCmd() *cobra.Command {
	var f verbFlags
	var in verb.CandidatesListRequest
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List candidates, the oldest first",
		Long:  `Without --status these are the candidates that wait for a decision.`,
		Example: `  scidex review list
  scidex review list --scope lab-ray --family protocol
  scidex review list --status rejected`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Limit = &limit
			return runVerb(cmd, &f, verb.CandidatesList, in, func(w io.Writer, out verb.CandidatesListResponse) {
				cells(w, "CANDIDATE", "VERSION", "STATUS", "FAMILY", "CHANGES", "BY", "PROPOSED", "TITLE")
				for i := range out.Candidates {
					c := &out.Candidates[i]
					changes := "new"
					if c.Target != nil {
						changes = c.Target.ArtifactID
					}
					cells(w, c.CandidateID, strconv.Itoa(c.Version), c.Status, c.Family, changes, c.CreatedBy, dateOf(c.CreatedAt), c.Proposal.Title)
				}
				if out.NextCursor != nil {
					moreLine(cmd, *out.NextCursor)
				}
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.ScopeID, "scope", artifact.Commons, "scope that they are in")
	cmd.Flags().StringVar(&in.Status, "status", "", "pending, approved or rejected; without, pending")
	cmd.Flags().StringVar(&in.Family, "family", "", "only candidates of this type of artifact")
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("how many to list, 1 to %d", verb.MaxCandidatesPage))
	cmd.Flags().StringVar(&in.Cursor, "cursor", "", "where to go on, as the list before said")
	return cmd
}

func newReviewShowCmd() *cobra.Command {
	var f verbFlags
	var in verb.CandidatesGetRequest
	cmd := &cobra.Command{
		Use:     "show CANDIDATE",
		Short:   "Show a candidate, and what it would change",
		Long:    `The change is shown as a diff against the very version that it is proposed for.`,
		Example: `  scidex review show 01a22fe9-74c2-7cbe-b3e8-e245a850e3de --scope lab-ray`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.CandidateID = args[0]
			var target artifact.Version
			if !f.asJSON {
				var err error
				if target, err = targetOf(cmd, &f, in); err != nil {
					return err
				}
			}
			return runVerb(cmd, &f, verb.CandidatesGet, in, func(w io.Writer, out verb.Candidate) { showCandidate(w, &out, target) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.ScopeID, "scope", artifact.Commons, "scope that it is in")
	return cmd
}

// targetOf reads what a candidate would change; nothing when it makes something new.
func targetOf(cmd *cobra.Command, f *verbFlags, in verb.CandidatesGetRequest) (v artifact.Version, err error) {
	client, err := f.client()
	if err != nil {
		return v, err
	}
	c, err := verb.CandidatesGet.Call(cmd.Context(), client, in)
	if err != nil {
		return v, f.failed(cmd, err)
	}
	v = artifact.Version{Content: json.RawMessage("{}")}
	if c.Target == nil {
		return v, nil
	}
	got, err := verb.Get.Call(cmd.Context(), client, verb.GetRequest{Ref: c.Target.Ref()})
	if err != nil {
		return v, f.failed(cmd, err)
	}
	return artifact.Version{Title: got.Artifact.Title, State: got.Artifact.State, Content: got.Artifact.Content}, nil
}

func showCandidate(w io.Writer, c *verb.Candidate, target artifact.Version) {
	cells(w, "candidate", c.CandidateID)
	cells(w, "scope", c.ScopeID)
	cells(w, "status", c.Status)
	cells(w, "version", strconv.Itoa(c.Version))
	cells(w, "family", c.Family)
	name := "nothing"
	if c.Target != nil {
		name = c.Target.Ref().String()
		cells(w, "changes", name)
	}
	cells(w, "proposed by", c.CreatedBy+", "+dateOf(c.CreatedAt))
	if c.Version > 1 {
		cells(w, "revised by", c.WrittenBy+", "+dateOf(c.WrittenAt))
	}
	cells(w, "reason", c.Reason)
	for i := range c.Artifacts {
		if e := &c.Artifacts[i]; c.Target == nil || *e != *c.Target {
			cells(w, "rests on", e.Ref().String())
		}
	}
	for _, l := range c.Proposal.Links {
		cells(w, "links", l.Predicate+" "+l.To)
	}
	if c.Status != verb.CandidatePending {
		cells(w, c.Status+" by", c.DecidedBy+", "+dateOf(c.DecidedAt))
	}
	if c.DecisionReason != "" {
		cells(w, "why", c.DecisionReason)
	}
	if c.ResultArtifact != nil {
		cells(w, "wrote", c.ResultArtifact.Ref().String())
	}
	diff, err := artifact.Unified(name, target, "proposed", artifact.Version{Title: c.Proposal.Title, State: c.Proposal.State, Content: c.Proposal.Content})
	if err != nil {
		diff = "the change is too large to show: see it with --json"
	}
	_, _ = io.WriteString(w, "\n") // the flush reports it
	for line := range strings.Lines(diff) {
		_, _ = io.WriteString(w, printable(strings.TrimSuffix(line, "\n"))+"\n")
	}
}

func newReviewReviseCmd() *cobra.Command {
	var f verbFlags
	var in verb.CandidatesReviseRequest
	var proposal string
	cmd := &cobra.Command{
		Use:   "revise CANDIDATE --expected-version N --proposal JSON",
		Short: "Put another complete proposal in the place of a candidate's",
		Long: `The proposal is what scidex review show --json has as proposal, with your changes. From
then on the candidate is at its next version.`,
		Example: `  scidex review revise CANDIDATE --expected-version 1 --proposal '{"title":"T","content":{"steps":"..."}}'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.CandidateID = args[0]
			if err := json.Unmarshal([]byte(proposal), &in.Proposal); err != nil {
				return &exitError{2, fmt.Errorf("--proposal is no JSON object of title, state and content: %w", err)}
			}
			return runVerb(cmd, &f, verb.CandidatesRevise, in, showDecision)
		},
	}
	f.add(cmd)
	addDecision(cmd, &in.ScopeID, &in.ExpectedVersion, &in.IdempotencyKey)
	cmd.Flags().StringVar(&proposal, "proposal", "", "title, state and content, as JSON")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why; without, as before")
	_ = cmd.MarkFlagRequired("proposal")
	return cmd
}

func newReviewApproveCmd() *cobra.Command {
	var f verbFlags
	var in verb.CandidatesApproveRequest
	cmd := &cobra.Command{
		Use:   "approve CANDIDATE --expected-version N",
		Short: "Approve a candidate: what it proposes is written",
		Long: `When what it would change is not as it was, it is refused and waits on: nothing is merged.
Approved twice at one version, it is written once.`,
		Example: `  scidex review approve CANDIDATE --expected-version 1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.CandidateID = args[0]
			return runVerb(cmd, &f, verb.CandidatesApprove, in, showDecision)
		},
	}
	f.add(cmd)
	addDecision(cmd, &in.ScopeID, &in.ExpectedVersion, &in.IdempotencyKey)
	return cmd
}

func newReviewRejectCmd() *cobra.Command {
	var f verbFlags
	var in verb.CandidatesRejectRequest
	cmd := &cobra.Command{
		Use:     "reject CANDIDATE --expected-version N --reason WHY",
		Short:   "Reject a candidate",
		Long:    `It is kept with the reason, and never opened again.`,
		Example: `  scidex review reject CANDIDATE --expected-version 1 --reason "There is one already"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.CandidateID = args[0]
			return runVerb(cmd, &f, verb.CandidatesReject, in, showDecision)
		},
	}
	f.add(cmd)
	addDecision(cmd, &in.ScopeID, &in.ExpectedVersion, &in.IdempotencyKey)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func addDecision(cmd *cobra.Command, scope *string, version *int, key *string) {
	cmd.Flags().StringVar(scope, "scope", artifact.Commons, "scope that it is in")
	cmd.Flags().IntVar(version, "expected-version", 0, "version of the candidate that you read")
	cmd.Flags().StringVar(key, "idempotency-key", "", "a UUID that makes a retry do nothing twice")
	_ = cmd.MarkFlagRequired("expected-version")
}

func showDecision(w io.Writer, c verb.Candidate) {
	cells(w, "candidate", c.CandidateID)
	cells(w, "status", c.Status)
	cells(w, "version", strconv.Itoa(c.Version))
	if c.ResultArtifact != nil {
		cells(w, "wrote", c.ResultArtifact.Ref().String())
	}
}
