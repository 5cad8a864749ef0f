package verb

import (
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
)

// More verbs that write: what becomes of a document, and what is said of it.
var (
	Supersede = Verb[SupersedeRequest, WriteResult]{
		Name:    "supersede",
		Summary: "Mark an artifact as replaced by another, or retire it. It keeps its content.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Contributor}, Own: true, Note: "in a private scope also the artifact's creator"},
	}
	Comment = Verb[CommentRequest, WriteResult]{
		Name:    "comment",
		Summary: "Remark on an artifact, a link or a signal, or answer a remark.",
		Effect:  Write,
		Needs:   toWrite,
	}
	Unlink = Verb[UnlinkRequest, LinkResult]{
		Name:    "unlink",
		Summary: "Take a link back, with a reason. Comments on it stay; they are on what is no longer there.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Contributor, Reviewer}, Note: "a contributor takes back its own links, a reviewer anyone's"},
	}
	Cite = Verb[CiteRequest, LinkResult]{
		Name:    "cite",
		Summary: "Link an artifact to the paper with this PubMed id, which must be here.",
		Effect:  Write,
		Needs:   toWrite,
	}
)

// SupersedeRequest names what is replaced, and by what: an artifact that is there,
// one that is made in the same transaction, or nothing, which retires it.
type SupersedeRequest struct {
	Ref             string         `json:"ref" jsonschema:"type:id of the artifact that is replaced"`
	BaseContentHash *artifact.Hash `json:"base_content_hash,omitempty" jsonschema:"content hash of the version you read; when given, it must be current"`
	ReplacementRef  string         `json:"replacement_ref,omitempty" jsonschema:"type:id of the artifact that replaces it"`
	Replacement     *NewArtifact   `json:"replacement,omitempty" jsonschema:"the artifact that replaces it, to be made: the members of a create request without options"`
	Reason          string         `json:"reason" jsonschema:"why, for the history"`
	WriteOptions
}

// CommentRequest asks for a comment. It stands in the scope of what it is on, or
// in a narrower one.
type CommentRequest struct {
	Ref          string `json:"ref" jsonschema:"ref of the artifact remarked on, or kg_edge:<id> of a link, or signal:<id> of a signal"`
	Body         string `json:"body" jsonschema:"the remark in Markdown, 1 to 65,536 characters"`
	Kind         string `json:"kind,omitempty" jsonschema:"such as question, objection or praise"`
	ThreadParent string `json:"thread_parent,omitempty" jsonschema:"ref of the comment that this one answers"`
	Scope        string `json:"scope,omitempty" jsonschema:"where it stands; absent: the scope of what it is on"`
	WriteOptions
}

// UnlinkRequest names a link by its ref, or by its ends as the caller's own.
type UnlinkRequest struct {
	Ref       string `json:"ref,omitempty" jsonschema:"kg_edge:<id> of the link"`
	From      string `json:"from,omitempty" jsonschema:"instead of ref: where your link begins"`
	Predicate string `json:"predicate,omitempty" jsonschema:"with from: its predicate"`
	To        string `json:"to,omitempty" jsonschema:"with from: where it leads"`
	Reason    string `json:"reason" jsonschema:"why, for the history"`
	WriteOptions
}

// CiteRequest asks for a citation.
type CiteRequest struct {
	Ref   string `json:"ref" jsonschema:"ref of the artifact that cites"`
	PMID  string `json:"paper_pmid" jsonschema:"PubMed id of the paper, such as 31452104"`
	Span  string `json:"span,omitempty" jsonschema:"the passage that is meant"`
	Claim string `json:"claim,omitempty" jsonschema:"what it is to support"`
	WriteOptions
}

// A NewArtifact is an artifact to be made, without the options of a request.
type NewArtifact struct {
	Type    string          `json:"type" jsonschema:"registered artifact type, such as hypothesis"`
	ID      string          `json:"id,omitempty" jsonschema:"id within the type; absent: made by the type's id strategy"`
	Scope   string          `json:"scope,omitempty" jsonschema:"who may see it; absent: commons"`
	Title   string          `json:"title" jsonschema:"one line"`
	Content json.RawMessage `json:"content" jsonschema:"object valid against the type's schema"`
	State   string          `json:"state,omitempty" jsonschema:"lifecycle state; absent: the type's initial state"`
	Links   []LinkSpec      `json:"links,omitempty" jsonschema:"links from the new artifact, made in the same transaction"`
}

// Request returns the request that makes a.
func (a *NewArtifact) Request() CreateRequest {
	return CreateRequest{Type: a.Type, ID: a.ID, Scope: a.Scope, Title: a.Title, Content: a.Content, State: a.State, Links: a.Links}
}
