package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Code names a kind of failure. The set is closed; what is finer is a reason.
type Code string

// The codes of an [Error].
const (
	CodeValidationFailed   Code = "validation_failed"
	CodeVersionConflict    Code = "version_conflict"
	CodeNotFound           Code = "not_found"
	CodePermissionDenied   Code = "permission_denied"
	CodeRateLimited        Code = "rate_limited"
	CodeLifecycleViolation Code = "lifecycle_violation"
	CodeLinkTargetMissing  Code = "link_target_missing"
	CodeMutability         Code = "mutability_violation"
	CodeUnavailable        Code = "unavailable"
	CodeInternal           Code = "internal_error"
)

// The reasons of an [Error] that are finer than its code. Each belongs to one code;
// package verb holds the table of what they mean.
const (
	ReasonInvalidJSON          = "invalid_json"
	ReasonUnreadableBody       = "unreadable_body"
	ReasonTooLarge             = "too_large"
	ReasonMethodNotAllowed     = "method_not_allowed"
	ReasonUnsupportedMediaType = "unsupported_media_type"
	ReasonInvalidCursor        = "invalid_cursor"
	ReasonIdempotencyConflict  = "idempotency_conflict"
	ReasonUnknownBase          = "unknown_base"
	ReasonUnconfirmed          = "unconfirmed"
	ReasonSeqOutOfRange        = "seq_out_of_range"
	ReasonIncompatible         = "incompatible"
	ReasonTokenTooLong         = "token_too_long_for_cookie"
	ReasonResponseTooLarge     = "response_too_large"
	ReasonTooMany              = "too_many"

	ReasonExists         = "exists"
	ReasonIDTaken        = "id_taken"
	ReasonHandleTaken    = "handle_taken"
	ReasonStaleBase      = "stale_base"
	ReasonSuperseded     = "superseded"
	ReasonCursorAhead    = "cursor_ahead"
	ReasonCursorDiverged = "cursor_diverged"
	ReasonCursorForeign  = "cursor_foreign"
	ReasonConsumerTaken  = "consumer_taken"

	ReasonCandidateNotFound   = "candidate_not_found"
	ReasonCandidateConflict   = "candidate_conflict"
	ReasonCandidateTerminal   = "candidate_terminal"
	ReasonArtifactConflict    = "artifact_conflict"
	ReasonEvidenceUnavailable = "evidence_unavailable"
	ReasonEvidenceLimit       = "evidence_limit_exceeded"

	ReasonUnknownVerb   = "unknown_verb"
	ReasonUnknownPath   = "unknown_path"
	ReasonCursorExpired = "cursor_expired"

	ReasonHistoryTrimmed = "history_trimmed"

	ReasonUnauthenticated   = "unauthenticated"
	ReasonDelegationRefused = "delegation_refused"
	ReasonRefreshDelegated  = "refresh_delegated"
	ReasonRefreshElsewhere  = "refresh_elsewhere"
	ReasonSessionEnded      = "session_ended"
	ReasonCrossOrigin       = "cross_origin"

	ReasonWritePolicy  = "write_policy"
	ReasonNotUpdated   = "not_updated"
	ReasonBuiltIn      = "built_in"
	ReasonParticipants = "participants"

	ReasonBusy                = "busy"
	ReasonDatabaseUnreachable = "database_unreachable"
	ReasonHubUnreachable      = "hub_unreachable"
	ReasonOutcomeUnknown      = "outcome_unknown"
	ReasonReplicaBehind       = "replica_behind"
	ReasonBootstrapping       = "bootstrapping"
	ReasonScopeLeft           = "scope_left"
	ReasonUnknownKey          = "unknown_key"
	ReasonUnexpectedAnswer    = "unexpected_answer"
	ReasonNotConfigured       = "not_configured"
	ReasonEmbeddingsBuilding  = "embeddings_building"
	ReasonModelUnavailable    = "model_unavailable"
)

// An Error is every failure that a caller is told of. Its JSON form is the body
// of an HTTP error and the structured content of a tool's error.
type Error struct {
	Code         Code
	Reason       string         // finer than Code; in the JSON form details.reason
	Message      string         // for people
	Details      map[string]any // other members of details
	Problems     []Problem      // all faults of a request, with CodeValidationFailed
	Conflict     *Conflict      // with CodeVersionConflict of an artifact
	RequestID    string         // stamped where the error leaves the process
	Retryable    bool
	RetryAfterMS int64 // zero: not known
}

// A Problem is one fault of a request: where, which rule, what was received.
type Problem struct {
	Path       string          `json:"path"` // JSON pointer into the request; "" is the whole
	Constraint string          `json:"constraint"`
	Message    string          `json:"message"`
	Value      json.RawMessage `json:"value_received"` // null when absent or too large to repeat
	Suggestion json.RawMessage `json:"suggestion"`     // a near value that would pass, or null
}

// A Conflict tells what an optimistic write lost to.
type Conflict struct {
	YourBase string           `json:"your_base,omitempty"`
	Current  *ConflictVersion `json:"current,omitempty"`
	// Diff is a JSON Patch (RFC 6902) of {content, state, title} from your base to
	// the current version.
	Diff  json.RawMessage `json:"diff_from_your_base,omitempty"`
	Merge *MergeHint      `json:"merge_hint,omitempty"`
}

// A MergeHint tells whether a refused change goes together with what changed since
// its base.
type MergeHint struct {
	Clean       bool            `json:"your_patch_replays_cleanly"`
	Conflicting []string        `json:"conflicting_paths"`  // JSON pointers into {content, state, title}
	Problems    []Problem       `json:"problems,omitempty"` // why what was merged may not be written
	Title       string          `json:"merged_title,omitempty"`
	State       string          `json:"merged_state,omitempty"`
	Content     json.RawMessage `json:"merged_content,omitempty"`
	Base        Hash            `json:"suggested_base_content_hash"` // to send the merged version with
}

// A ConflictVersion is the version that is current now.
type ConflictVersion struct {
	Ref       Ref             `json:"ref"`
	Revision  int             `json:"revision"`
	Title     string          `json:"title"`
	State     string          `json:"state,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	ChangedBy Actor           `json:"changed_by"`
	ChangedAt time.Time       `json:"changed_at"`
}

// Error implements error.
func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(string(e.Code))
	if e.Reason != "" && e.Reason != string(e.Code) {
		s.WriteString(" (" + e.Reason + ")")
	}
	if e.Message != "" {
		s.WriteString(": " + e.Message)
	}
	for i, p := range e.Problems {
		if i == 3 {
			s.WriteString(" …")
			break
		}
		s.WriteString("; " + p.Path + ": " + p.Message)
	}
	return s.String()
}

// errorBody is the JSON form of an Error.
type errorBody struct {
	Error      Code           `json:"error"`
	Message    string         `json:"message"`
	Details    map[string]any `json:"details"`
	RequestID  string         `json:"request_id"`
	Retryable  bool           `json:"retryable"`
	RetryAfter *int64         `json:"retry_after_ms"`
	Problems   []Problem      `json:"problems,omitempty"`
	*Conflict
}

// MarshalJSON implements json.Marshaler.
func (e *Error) MarshalJSON() ([]byte, error) {
	b := errorBody{
		Error: e.Code, Message: e.Message, RequestID: e.RequestID, Retryable: e.Retryable,
		Problems: e.Problems, Conflict: e.Conflict, Details: map[string]any{"reason": e.Reason},
	}
	if e.Reason == "" {
		b.Details["reason"] = string(e.Code)
	}
	maps.Copy(b.Details, e.Details)
	if e.RetryAfterMS > 0 {
		b.RetryAfter = &e.RetryAfterMS
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // <id> is to be read
	err := enc.Encode(b)
	return out.Bytes(), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Error) UnmarshalJSON(raw []byte) error {
	var b errorBody
	if err := json.Unmarshal(raw, &b); err != nil {
		return err
	}
	*e = Error{
		Code: b.Error, Message: b.Message, RequestID: b.RequestID, Retryable: b.Retryable,
		Problems: b.Problems, Conflict: b.Conflict,
	}
	if b.RetryAfter != nil {
		e.RetryAfterMS = *b.RetryAfter
	}
	e.Reason, _ = b.Details["reason"].(string)
	delete(b.Details, "reason")
	if len(b.Details) > 0 {
		e.Details = b.Details
	}
	return nil
}

// Invalid returns a validation_failed error of these problems, of which it tells
// the first 100.
func Invalid(problems ...Problem) *Error {
	e := &Error{Code: CodeValidationFailed, Message: "the request breaks its rules", Problems: problems}
	if len(problems) > maxCheckProblems {
		e.Problems = problems[:maxCheckProblems]
		e.Message += "; its first " + strconv.Itoa(maxCheckProblems) + " problems are told"
	}
	return e
}

// NotFound returns the error for what does not exist or may not be seen. The
// two are told apart by nothing.
func NotFound(ref string) *Error {
	return &Error{Code: CodeNotFound, Message: "there is nothing of this name that you may see", Details: map[string]any{"ref": ref}}
}

// Denied returns a permission_denied error that says what is needed.
func Denied(message string) *Error {
	return &Error{Code: CodePermissionDenied, Message: message}
}

// AsError returns the [*Error] in err's chain, or an internal_error that names
// no internals.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: "the server failed; report the request id"}
}

// IsCode reports whether err's chain holds an [*Error] with this code.
func IsCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// maxReceived is how much of a refused value an error repeats, in bytes.
const maxReceived = 200

// Received returns a text as a problem's value_received, cut to a bearable size.
func Received(s string) json.RawMessage {
	if len(s) > maxReceived {
		cut := maxReceived
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	return raw
}
