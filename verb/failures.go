package verb

import (
	"net/http"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
)

// A Failure is one way in which a request can fail, as every door tells it: what an
// [artifact.Error] of its code and reason means.
type Failure struct {
	Code      artifact.Code
	Reason    string // belongs to this code alone; the code's own name where there is none finer
	Status    int    // of HTTP
	Retryable bool   // the same request may succeed later
	Means     string
	Next      string // what the caller does about it
}

// failures are all there are. docs/VERBS.md and the OpenAPI document list them; a
// test holds them to the source. An answer's status is told here and nowhere else.
var failures = []Failure{
	{
		artifact.CodeValidationFailed, string(artifact.CodeValidationFailed), http.StatusUnprocessableEntity, false,
		"the request breaks rules; `problems` names every one, with path, constraint, value and, where one is near, a suggestion", "mend what `problems` names",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonInvalidJSON, http.StatusBadRequest, false,
		"the body is no JSON; JSON that cannot be kept, such as a duplicate key or a number that is not exact, is `validation_failed`", "mend the JSON at the byte that `problems` names",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonUnreadableBody, http.StatusBadRequest, false,
		"the body broke off", "send it again",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonTooLarge, http.StatusRequestEntityTooLarge, false,
		"the body is longer than the verb takes", "send less at a time",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonMethodNotAllowed, http.StatusMethodNotAllowed, false,
		"verbs are called by POST", "use POST",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonUnsupportedMediaType, http.StatusUnsupportedMediaType, false,
		"the body is not declared as JSON, or is compressed", "send Content-Type: application/json, and no Content-Encoding",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonInvalidCursor, http.StatusBadRequest, false,
		"the cursor was not given by this list for this request, or a position is not written epoch:seq", "begin without a cursor",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonIdempotencyConflict, http.StatusConflict, false,
		"the idempotency key was used for another request; `details.first_seen_at` says when", "use a new key for a new request",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonUnknownBase, http.StatusUnprocessableEntity, false,
		"the artifact never had the version that the update is based on", "read the artifact, and base the update on its content_hash",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonUnconfirmed, http.StatusUnprocessableEntity, false,
		"what cannot be undone is to be confirmed; `details.revisions` is what it meets", "send it again with `revisions`",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonSeqOutOfRange, http.StatusUnprocessableEntity, false,
		"no digest is given for this seq: it is beyond the log's head, or too far back", "ask for a later one, or for the head",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonIncompatible, http.StatusUnprocessableEntity, false,
		"the change of a type does not go with what is stored; `problems` says why, and `details.examples` with which artifacts", "change less, or make the version breaking and name a migrator",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonTokenTooLong, http.StatusUnprocessableEntity, false,
		"browsers keep no cookie as long as this token", "use a token with fewer scopes or steps of delegation",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonResponseTooLarge, http.StatusUnprocessableEntity, false,
		"what is asked for is too much for one response: the contents of a GraphQL query, or the difference of large versions", "ask for fewer, or for a path into them; or read both versions",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonTooMany, http.StatusUnprocessableEntity, false,
		"there are as many already as there may be: `details.limit` of `details.of`", "delete those that are no longer needed",
	},

	{
		artifact.CodeVersionConflict, artifact.ReasonStaleBase, http.StatusConflict, false,
		"the artifact changed since the version you read; `current`, `diff_from_your_base` and `merge_hint` say how", "merge, and send it again based on `current`",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonExists, http.StatusConflict, false,
		"something of this id exists; `current` is an artifact's version", "update that, or choose another id",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonIDTaken, http.StatusConflict, false,
		"the id is taken by what you may not see", "choose another id",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonHandleTaken, http.StatusConflict, false,
		"the handle is, or was, another agent's: handles are unique over the whole hub", "choose another",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonSuperseded, http.StatusConflict, false,
		"the artifact was superseded already; `details.superseded_by` is by what", "go on with that one",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonCursorAhead, http.StatusConflict, false,
		"the cursor is ahead of the log: it is of another hub, or the hub lost commits", "begin anew, as a node does by itself",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonCursorDiverged, http.StatusConflict, false,
		"the log took another course before the cursor: the hub was restored", "begin anew, as a node does by itself",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonCursorForeign, http.StatusConflict, false,
		"the cursor is of another hub", "name that hub, or begin anew",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonConsumerTaken, http.StatusConflict, false,
		"the consumer is read by another now, or was rewound: `details.generation` is the one that counts", "go on only if you are to have it: poll or subscribe with it again",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonCandidateConflict, http.StatusConflict, false,
		"the candidate was revised since you read it; `details` has `expected_version` and `current_version`", "read it again, and decide on what it is now",
	},
	{
		artifact.CodeVersionConflict, artifact.ReasonArtifactConflict, http.StatusConflict, false,
		"what the candidate would change is not as it was when that was proposed, or its id is taken; `details` has `target` and `current`. Nothing is merged, and the candidate waits on",
		"reject it; who proposed it may propose anew",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonEvidenceUnavailable, http.StatusUnprocessableEntity, false,
		"what the candidate rests on was redacted, or is gone; `problems` says which", "reject it, or revise it with other evidence",
	},
	{
		artifact.CodeValidationFailed, artifact.ReasonEvidenceLimit, http.StatusUnprocessableEntity, false,
		"a candidate rests on at most 32 exact versions", "name those that count",
	},
	{
		artifact.CodeNotFound, artifact.ReasonCandidateNotFound, http.StatusNotFound, false,
		"there is no such candidate in a scope that you may see", "see candidates/list",
	},
	{
		artifact.CodeLifecycleViolation, artifact.ReasonCandidateTerminal, http.StatusConflict, false,
		"the candidate was decided; `details.status` says how", "leave it; propose anew",
	},

	{
		artifact.CodeNotFound, string(artifact.CodeNotFound), http.StatusNotFound, false,
		"it is not there, or you may not see it: the two are told apart by nothing", "look whether the name is right",
	},
	{
		artifact.CodeNotFound, artifact.ReasonUnknownVerb, http.StatusNotFound, false,
		"there is no such verb; `details.suggestion` is a near one", "see /openapi.json",
	},
	{
		artifact.CodeNotFound, artifact.ReasonUnknownPath, http.StatusNotFound, false,
		"nothing is served at this path", "see / and /openapi.json",
	},
	{
		artifact.CodeNotFound, artifact.ReasonHistoryTrimmed, http.StatusGone, false,
		"the log does not reach back to `as_of_seq`; `details.oldest_seq` is the first that can be asked for", "ask for a later one, or read the versions with history",
	},
	{
		artifact.CodeNotFound, artifact.ReasonCursorExpired, http.StatusGone, false,
		"the log does not reach back to the cursor; `details.oldest` is the first event that is kept", "begin anew, as a node does by itself; a consumer goes on after consumers/advance or consumers/rewind to what is kept",
	},

	{
		artifact.CodePermissionDenied, string(artifact.CodePermissionDenied), http.StatusForbidden, false,
		"you may see it and not do this; `details.needs` names the permission", "have it granted, or ask who has it",
	},
	{
		artifact.CodePermissionDenied, artifact.ReasonUnauthenticated, http.StatusUnauthorized, false,
		"there is no valid token", "get a token",
	},
	{
		artifact.CodePermissionDenied, artifact.ReasonDelegationRefused, http.StatusForbidden, false,
		"an agent in the token's delegation chain may not delegate; `details.agent` is which", "have the agent allowed to, or use a token without it",
	},
	{
		artifact.CodePermissionDenied, artifact.ReasonRefreshDelegated, http.StatusForbidden, false,
		"a delegated token ends when its delegation does", "ask the agent that gave it",
	},
	{
		artifact.CodePermissionDenied, artifact.ReasonRefreshElsewhere, http.StatusForbidden, false,
		"the token is renewed where it was issued: `details.issuer`", "renew it there",
	},
	{
		artifact.CodePermissionDenied, artifact.ReasonSessionEnded, http.StatusForbidden, false,
		"the session is too old to be renewed", "sign in again",
	},
	{
		artifact.CodePermissionDenied, artifact.ReasonCrossOrigin, http.StatusForbidden, false,
		"a page of another origin called with the cookie", "name the origin with the server's --origin",
	},

	{
		artifact.CodeRateLimited, string(artifact.CodeRateLimited), http.StatusTooManyRequests, true,
		"too many requests; `details` names the limit", "wait as long as `retry_after_ms` says",
	},
	{
		artifact.CodeLifecycleViolation, string(artifact.CodeLifecycleViolation), http.StatusConflict, false,
		"the type's lifecycle has no such move; `details.allowed` lists those it has", "move it to one of those",
	},
	{
		artifact.CodeLinkTargetMissing, string(artifact.CodeLinkTargetMissing), http.StatusUnprocessableEntity, false,
		"a link leads to what is not there, or may not be seen; `details.refs` lists them", "create the target first",
	},
	{
		artifact.CodeMutability, artifact.ReasonNotUpdated, http.StatusConflict, false,
		"artifacts of the type are not updated, or not superseded; `details.mutability` says how they are kept", "use one of `details.allowed_verbs`",
	},
	{
		artifact.CodeMutability, artifact.ReasonBuiltIn, http.StatusConflict, false,
		"the type schema is a part of the program, and schemas stay whole and in commons", "leave it; a newer program may bring another",
	},
	{
		artifact.CodeMutability, artifact.ReasonWritePolicy, http.StatusConflict, false,
		"artifacts of the type are not written by this verb; `details.write_policy` says how they are", "use one of the verbs in `details.use`",
	},
	{
		artifact.CodeMutability, artifact.ReasonParticipants, http.StatusConflict, false,
		"what is for its participants alone stays where it is", "leave it",
	},

	{
		artifact.CodeUnavailable, artifact.ReasonBusy, http.StatusServiceUnavailable, true,
		"the hub is busy; nothing was written", "send it again after `retry_after_ms`",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonDatabaseUnreachable, http.StatusServiceUnavailable, true,
		"the hub cannot reach its database; nothing was written", "send it again after `retry_after_ms`",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonHubUnreachable, http.StatusServiceUnavailable, true,
		"the node cannot reach its hub; nothing was written", "send it again after `retry_after_ms`; reads go on",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonOutcomeUnknown, http.StatusServiceUnavailable, true,
		"the write may have happened", "send it again with the same idempotency key: it happens once",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonReplicaBehind, http.StatusServiceUnavailable, true,
		"the replica does not have the write yet that the header SciDEX-Consistency names", "send it again after `retry_after_ms`",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonBootstrapping, http.StatusServiceUnavailable, true,
		"the node is making its first copy of the hub; `details.percent` and `details.eta_ms` tell how far it is", "send it again after `retry_after_ms`, or to another node",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonScopeLeft, http.StatusServiceUnavailable, false,
		"the node no longer follows `details.scope`, which the subscription saw", "subscribe anew, at another node for what happens there",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonUnknownKey, http.StatusServiceUnavailable, true,
		"the key that signed the token is not known here, and its issuer does not answer", "send it again after `retry_after_ms`",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonUnexpectedAnswer, http.StatusServiceUnavailable, false,
		"what answered is no hub and no node", "look whether the URL is right",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonNotConfigured, http.StatusServiceUnavailable, false,
		"what was asked for needs a model that the operator has not configured", "do without it; for a search, mode `lexical`",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonEmbeddingsBuilding, http.StatusServiceUnavailable, true,
		"artifacts are being given to the model for the first time", "wait, or search in mode `auto`, which finds by words until then",
	},
	{
		artifact.CodeUnavailable, artifact.ReasonModelUnavailable, http.StatusServiceUnavailable, true,
		"the model's endpoint did not answer, or not with what was asked for; or there is more to compare than this server does", "wait, or search in mode `auto` or `lexical`; the operator finds why in the log",
	},
	{
		artifact.CodeInternal, string(artifact.CodeInternal), http.StatusInternalServerError, false,
		"the server failed", "report the `request_id`",
	},
}

// Failures returns all ways in which a request can fail, by code.
func Failures() []Failure { return slices.Clone(failures) }

var failureByReason = func() map[string]Failure {
	m := make(map[string]Failure, len(failures))
	for _, f := range failures {
		m[f.Reason] = f
	}
	return m
}()

// FailureOf returns what an error means, and whether the table has its code and
// reason.
func FailureOf(e *artifact.Error) (Failure, bool) {
	reason := e.Reason
	if reason == "" {
		reason = string(e.Code)
	}
	f, ok := failureByReason[reason]
	return f, ok && f.Code == e.Code
}

// Status returns the HTTP status of an error.
func Status(e *artifact.Error) int {
	if f, ok := FailureOf(e); ok {
		return f.Status
	}
	return http.StatusInternalServerError
}
