package verb

import "github.com/scidex-ai/substrate/artifact"

// The verbs that change who may see what was written.
var (
	Move = Verb[MoveRequest, WriteResult]{
		Name:    "move",
		Summary: "Move an artifact to another scope, with its comments, signals and links, and the comments on those.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Note: "in both scopes"},
	}
	Redact = Verb[RedactRequest, WriteResult]{
		Name:    "redact",
		Summary: "Take the title, content and notes out of every version of an artifact, here and in every replica. Its links, signals and comments stay as they are.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}},
	}
)

// MoveRequest asks for a move. Members of the new scope gain the artifact, those
// of the old one alone lose it, in replicas too.
type MoveRequest struct {
	Ref             string        `json:"ref" jsonschema:"type:id of the artifact"`
	Scope           string        `json:"scope" jsonschema:"where it is to be"`
	BaseContentHash artifact.Hash `json:"base_content_hash" jsonschema:"content hash of the version you read: nothing is moved that you have not seen"`
	WithHistory     bool          `json:"with_history,omitempty" jsonschema:"a move into commons: true publishes all versions; otherwise the earlier ones stay with the old scope"`
	Reason          string        `json:"reason" jsonschema:"why, for the history"`
	WriteOptions
}

// RedactRequest asks for a redaction. It cannot be undone: a dry run first tells
// how many versions it meets, and the number must be confirmed.
type RedactRequest struct {
	Ref       string `json:"ref" jsonschema:"type:id of the artifact"`
	Reason    string `json:"reason" jsonschema:"why, told to everyone who reads it later"`
	Revisions int    `json:"revisions,omitempty" jsonschema:"how many versions are to be redacted, as the dry run said: it confirms the redaction"`
	WriteOptions
}
