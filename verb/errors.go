package verb

import (
	"slices"

	"github.com/scidex-ai/substrate/artifact"
)

// errorsOfAny are the reasons for which any verb may fail.
var errorsOfAny = []string{
	artifact.ReasonInvalidJSON, artifact.ReasonUnreadableBody, artifact.ReasonTooLarge,
	artifact.ReasonMethodNotAllowed, artifact.ReasonUnsupportedMediaType, string(artifact.CodeValidationFailed),
	artifact.ReasonUnauthenticated, artifact.ReasonDelegationRefused, artifact.ReasonCrossOrigin,
	string(artifact.CodeRateLimited),
	artifact.ReasonBusy, artifact.ReasonDatabaseUnreachable, artifact.ReasonUnknownKey,
	string(artifact.CodeInternal),
}

// errorsAtNodes are the reasons for which any verb may fail at a node: of the
// position that a reader asks for, and of the hub behind it.
var errorsAtNodes = []string{
	artifact.ReasonInvalidCursor, artifact.ReasonReplicaBehind, artifact.ReasonHubUnreachable,
}

// errorsOf are further reasons, by verb: what follows neither from its effect nor
// from its permission nor from its request. A verb that has none is here too.
var errorsOf = map[string][]string{
	Get.Name:     {string(artifact.CodeNotFound), artifact.ReasonHistoryTrimmed},
	List.Name:    {},
	History.Name: {string(artifact.CodeNotFound)},
	Diff.Name:    {string(artifact.CodeNotFound), artifact.ReasonResponseTooLarge},
	Links.Name:   {string(artifact.CodeNotFound)},
	Search.Name:  {artifact.ReasonInvalidCursor, artifact.ReasonNotConfigured, artifact.ReasonEmbeddingsBuilding, artifact.ReasonModelUnavailable},
	Schema.Name:  {string(artifact.CodeNotFound)},
	Poll.Name:    {artifact.ReasonCursorExpired, artifact.ReasonConsumerTaken, artifact.ReasonTooMany, artifact.ReasonOutcomeUnknown},
	Signals.Name: {string(artifact.CodeNotFound)},
	Create.Name: {
		artifact.ReasonExists, artifact.ReasonIDTaken, artifact.ReasonWritePolicy,
		string(artifact.CodeLifecycleViolation), string(artifact.CodeLinkTargetMissing),
	},
	Update.Name: {
		string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonUnknownBase, string(artifact.CodeLifecycleViolation),
		artifact.ReasonNotUpdated, artifact.ReasonWritePolicy, artifact.ReasonBuiltIn, artifact.ReasonIncompatible,
	},
	Link.Name:   {string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonWritePolicy, string(artifact.CodeLinkTargetMissing)},
	Signal.Name: {string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonNotUpdated},
	Batch.Name:  {},
	Supersede.Name: {
		string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonSuperseded,
		artifact.ReasonExists, artifact.ReasonIDTaken, artifact.ReasonWritePolicy, artifact.ReasonBuiltIn, artifact.ReasonNotUpdated,
		string(artifact.CodeLifecycleViolation), string(artifact.CodeLinkTargetMissing),
	},
	Comment.Name: {string(artifact.CodeNotFound), string(artifact.CodeLinkTargetMissing)},
	Unlink.Name:  {string(artifact.CodeNotFound), artifact.ReasonWritePolicy},
	Cite.Name:    {string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonWritePolicy, string(artifact.CodeLinkTargetMissing)},
	Move.Name:    {string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonParticipants, artifact.ReasonNotUpdated, artifact.ReasonBuiltIn},
	Redact.Name:  {string(artifact.CodeNotFound), artifact.ReasonStaleBase, artifact.ReasonUnconfirmed, artifact.ReasonNotUpdated, artifact.ReasonBuiltIn},

	ScopesCreate.Name:  {artifact.ReasonExists},
	ScopesList.Name:    {},
	ScopesMembers.Name: {string(artifact.CodeNotFound)},
	ScopesGrant.Name:   {string(artifact.CodeNotFound)},
	ScopesRevoke.Name:  {string(artifact.CodeNotFound)},
	TokensRevoke.Name:  {string(artifact.CodePermissionDenied)},

	AgentsGet.Name:      {string(artifact.CodeNotFound)},
	AgentsList.Name:     {},
	AgentsResolve.Name:  {string(artifact.CodeNotFound)},
	AgentsUpdate.Name:   {string(artifact.CodeNotFound), artifact.ReasonHandleTaken},
	AgentsRegister.Name: {artifact.ReasonExists, artifact.ReasonHandleTaken},

	ConsumersGet.Name:         {string(artifact.CodeNotFound)},
	ConsumersAdvance.Name:     {string(artifact.CodeNotFound), artifact.ReasonConsumerTaken, artifact.ReasonCursorExpired},
	ConsumersRewind.Name:      {string(artifact.CodeNotFound), artifact.ReasonCursorExpired},
	ConsumersRefuse.Name:      {string(artifact.CodeNotFound), artifact.ReasonConsumerTaken, artifact.ReasonTooMany},
	ConsumersDeadLetters.Name: {string(artifact.CodeNotFound)},
	ConsumersReplay.Name:      {string(artifact.CodeNotFound)},
	ConsumersDelete.Name:      {string(artifact.CodeNotFound)},
	MessagesSend.Name:         {},
	MessagesList.Name:         {},
	MessagesAck.Name:          {string(artifact.CodeNotFound), string(artifact.CodeLifecycleViolation)},
	Mailbox.Name:              {},

	CandidatesList.Name:    {artifact.ReasonCandidateNotFound},
	CandidatesGet.Name:     {artifact.ReasonCandidateNotFound},
	CandidatesHistory.Name: {artifact.ReasonCandidateNotFound},
	CandidatesRevise.Name:  slices.Concat(errorsOfDecision, errorsOfProposal),
	CandidatesApprove.Name: slices.Concat(errorsOfDecision, errorsOfProposal),
	CandidatesReject.Name:  errorsOfDecision,

	NodesInvite.Name: {},
	NodesList.Name:   {},
	NodesRevoke.Name: {string(artifact.CodeNotFound)},
}

// errorsOfDecision are reasons why a candidate is not decided on, and
// errorsOfProposal why what it proposes is not written.
var (
	errorsOfDecision = []string{artifact.ReasonCandidateNotFound, artifact.ReasonCandidateConflict, artifact.ReasonCandidateTerminal}
	errorsOfProposal = []string{
		artifact.ReasonArtifactConflict, artifact.ReasonEvidenceUnavailable, artifact.ReasonEvidenceLimit,
		string(artifact.CodeLifecycleViolation), string(artifact.CodeLinkTargetMissing), artifact.ReasonIncompatible,
	}
)

// Errors returns the failures that a bound verb may answer with beside those of
// any verb, in the order of the table.
func (r *Registry) Errors(name string) []Failure {
	b, ok := r.byName[name]
	if !ok {
		return nil
	}
	reasons := slices.Clone(errorsOf[name])
	if name == Batch.Name { // each item fails as its verb does
		for _, op := range batchOpNames() {
			for _, f := range r.Errors(op) {
				reasons = append(reasons, f.Reason)
			}
		}
	}
	if len(b.needs.AnyOf) > 0 {
		reasons = append(reasons, string(artifact.CodePermissionDenied))
	}
	if b.effect == Write {
		reasons = append(reasons, artifact.ReasonOutcomeUnknown)
	}
	if b.in.Properties["idempotency_key"] != nil && name != keyless {
		reasons = append(reasons, artifact.ReasonIdempotencyConflict)
	}
	if b.in.Properties["cursor"] != nil {
		reasons = append(reasons, artifact.ReasonInvalidCursor)
	}
	return failuresOf(reasons)
}

// ErrorsOfAny returns the failures that any verb may answer with.
func ErrorsOfAny() []Failure { return failuresOf(errorsOfAny) }

// ErrorsAtNodes returns the failures that any verb may answer with at a node.
func ErrorsAtNodes() []Failure { return failuresOf(errorsAtNodes) }

func failuresOf(reasons []string) (all []Failure) {
	for _, f := range failures {
		if slices.Contains(reasons, f.Reason) {
			all = append(all, f)
		}
	}
	return all
}

// Declares reports whether an error is one that a verb says it may answer with.
func (r *Registry) Declares(name string, e *artifact.Error) bool {
	f, ok := FailureOf(e)
	if !ok || f.Retryable != e.Retryable {
		return false
	}
	if r.byName[name] == nil {
		return f.Reason == artifact.ReasonUnknownVerb || slices.Contains(errorsOfAny, f.Reason)
	}
	return slices.Contains(errorsOfAny, f.Reason) || slices.Contains(errorsAtNodes, f.Reason) || slices.Contains(r.Errors(name), f)
}
