package verb

import (
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
)

// Diff compares two versions.
var Diff = Verb[DiffRequest, DiffResponse]{
	Name:    "diff",
	Summary: "Compare two versions, of one artifact or of two, line by line and as a patch.",
	Effect:  Read,
	Needs:   toRead,
}

// DiffRequest names the versions.
type DiffRequest struct {
	RefA artifact.Ref `json:"ref_a" jsonschema:"what to compare from: type:id for the current version, type:id@sha256:<64 hex> for one version; also a link or a signal"`
	RefB artifact.Ref `json:"ref_b" jsonschema:"what to compare to, which may be another artifact, of another type too"`
}

// DiffResponse is what makes b of a. Contents are compared in the form of their
// types' current schemas.
type DiffResponse struct {
	A       artifact.Artifact `json:"a" jsonschema:"what was compared from, without its content"`
	B       artifact.Artifact `json:"b" jsonschema:"what was compared to, without its content"`
	Equal   bool              `json:"equal" jsonschema:"true: title, state and content are the same"`
	Unified string            `json:"unified" jsonschema:"the difference of both, laid out as text, in the format of diff -u; empty when they are equal"`
	Patch   json.RawMessage   `json:"patch" jsonschema:"JSON Patch (RFC 6902) of {content, state, title} that makes b of a; it replaces the content as a whole where that is shorter"`
	AsOf    artifact.Seq      `json:"as_of"`
}

// Place fills the response in.
func (r *DiffResponse) Place(a, b artifact.Artifact) (err error) {
	from, to := inCurrentForm(&a), inCurrentForm(&b)
	if r.Patch, err = artifact.Diff(from, to); err != nil {
		return err
	}
	if r.Unified, err = artifact.Unified(a.Ref.String(), from, b.Ref.String(), to); err != nil {
		return err
	}
	r.A, r.B, r.Equal = a, b, r.Unified == ""
	return nil
}

// inCurrentForm takes an artifact's content out.
func inCurrentForm(a *artifact.Artifact) artifact.Version {
	v := artifact.Version{Content: a.Content, State: a.State, Title: a.Title}
	if a.UpgradedContent != nil {
		v.Content = a.UpgradedContent
	}
	a.Content, a.UpgradedContent = nil, nil
	return v
}
