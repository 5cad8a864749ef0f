package hub

import (
	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/scidex-ai/substrate/artifact"
)

// nextVersion returns what the update makes of the artifact. When its base is not
// current, that is the merge of both changes, if it was asked for and is clean;
// else the error is the conflict.
func (o *updateOp) nextVersion(s *state, current *head) (n nextVersion, err error) {
	now := o.inForm(s, current)
	if current.ContentHash == o.base {
		return o.apply(now)
	}
	base := s.content(o.ref.At(o.base)) // decide has found it
	if current.content == nil || base.Content == nil {
		return n, errNeedsContent
	}
	theirs, err := o.apply(*base)
	if err != nil {
		return theirs, err
	}
	if theirs.hash == current.ContentHash {
		return theirs, nil // both made the same of it
	}
	merged, hint, err := o.merge(s, current, *base, now, theirs)
	if err != nil {
		return n, err
	}
	if isRedacted(base) { // what changed since cannot be told from what was taken out
		hint = &artifact.MergeHint{Conflicting: hint.Conflicting, Problems: []artifact.Problem{nothingLeft(o.base)}, Base: current.ContentHash}
	}
	if hint.Clean && o.in.AutoMerge {
		o.merged = true
		return merged, nil
	}
	conflict := conflict(current, artifact.ReasonStaleBase, "the artifact changed since the version you read", o.base)
	conflict.Conflict.Merge = hint
	if conflict.Conflict.Diff, err = artifact.Diff(*base, now); err != nil {
		return n, err
	}
	return n, conflict
}

// merge merges the change with what changed since its base. What it makes must
// itself be allowed, or it is not clean.
func (o *updateOp) merge(s *state, current *head, base, now artifact.Version, theirs nextVersion) (n nextVersion, hint *artifact.MergeHint, err error) {
	var fields []string
	if o.schema.Merge != nil {
		fields = o.schema.Merge.TextFields
	}
	m, err := artifact.Merge(base, now, theirs.Version, fields)
	if err != nil {
		return n, nil, err
	}
	hint = &artifact.MergeHint{Conflicting: append([]string{}, m.Conflicts...), Base: current.ContentHash}
	if !m.Clean() {
		return n, hint, nil
	}
	if n, hint.Problems = o.check(m.Version, "/content"); hint.Problems != nil {
		return n, hint, nil
	}
	if err := o.schema.CheckTransition(o.state, n.State, o.review.roles(s.caller, current.Scope)); err != nil {
		hint.Problems = artifact.AsError(err).Problems
		return n, hint, nil
	}
	inspection := inspect(o.schema, n.Content, false)
	if hint.Problems, _ = s.papers.check(inspection, current.Scope); hint.Problems != nil {
		return n, hint, nil
	}
	hint.Clean, hint.Title, hint.State, hint.Content = true, n.Title, n.State, n.Content
	return n, hint, nil
}

// A nextVersion is what an update makes of an artifact.
type nextVersion struct {
	artifact.Version
	hash artifact.Hash
}

// apply applies the request to a version.
func (o *updateOp) apply(to artifact.Version) (n nextVersion, err error) {
	v := to
	whole := o.content != nil // it was checked already
	switch {
	case o.unversioned:
		if v.Content, err = artifact.WithSchemaVersion(o.content, artifact.SchemaVersionOf(to.Content)); err != nil {
			return n, err
		}
	case whole:
		v.Content = o.content
	case len(o.in.MergePatch) > 0:
		if v.Content, err = jsonpatch.MergePatch(v.Content, o.in.MergePatch); err != nil {
			return n, artifact.Invalid(artifact.Problem{Path: "/merge_patch", Constraint: "merge_patch", Message: "the patch does not apply to the base"})
		}
	case len(o.in.Patch) > 0:
		var problems []artifact.Problem
		if v, problems = v.Patch(o.in.Patch, "/patch"); problems != nil {
			return n, artifact.Invalid(problems...)
		}
		if problems = o.contradicts(&to, &v); problems != nil {
			return n, artifact.Invalid(problems...)
		}
	}
	if o.in.Title != "" {
		v.Title = o.in.Title
	}
	if o.in.State != "" {
		v.State = o.in.State
	}
	hollow := isRedacted(&to) // which is not what the type asks for
	if whole || len(o.in.MergePatch)+len(o.in.Patch) == 0 && !o.upgraded && !hollow {
		n.Version, n.hash = v, artifact.ContentHash(o.ref.Type, v.Title, v.State, v.Content)
		return n, nil
	}
	n, problems := o.check(v, "/content")
	if problems != nil {
		if hollow {
			problems = append([]artifact.Problem{nothingLeft(o.base)}, problems...)
		}
		return n, artifact.Invalid(problems...) // n's content is canonical, or nil
	}
	return n, nil
}

// isRedacted reports whether a version is as a redaction leaves it.
func isRedacted(v *artifact.Version) bool {
	return string(v.Content) == "{}" && v.Title == redactedTitle
}

// nothingLeft says why nothing is made of a version.
func nothingLeft(base artifact.Hash) artifact.Problem {
	return artifact.Problem{
		Path: "/base_content_hash", Constraint: "redacted", Value: artifact.Received(base.String()),
		Message: "this version was redacted: nothing is left of it to change or to merge with; give the whole content, title and state, based on the current version",
	}
}

// contradicts tells where the request's own members want something else than what
// its patch made.
func (o *updateOp) contradicts(before, after *artifact.Version) (problems []artifact.Problem) {
	for _, m := range []struct{ path, asked, was, is string }{
		{"/title", o.in.Title, before.Title, after.Title},
		{"/state", o.in.State, before.State, after.State},
	} {
		if m.asked != "" && m.is != m.was && m.is != m.asked {
			problems = append(problems, artifact.Problem{
				Path: m.path, Constraint: "exactly_one", Message: "the patch sets it too, to something else", Value: artifact.Received(m.asked),
			})
		}
	}
	return problems
}

// check returns a version in canonical form, or what is wrong with it.
func (o *updateOp) check(v artifact.Version, at string) (n nextVersion, problems []artifact.Problem) {
	content, problems := artifact.Canonical(v.Content, at)
	if content != nil {
		problems = o.schema.Validate(content, at)
	}
	if p := artifact.CheckTitle(v.Title, "/title"); p != nil {
		problems = append(problems, *p)
	}
	if v.State != o.schema.Initial() {
		if p := o.schema.CheckState(v.State, "/state"); p != nil {
			problems = append(problems, *p)
		}
	}
	v.Content = content
	n.Version = v
	if problems == nil {
		n.hash = artifact.ContentHash(o.ref.Type, v.Title, v.State, content)
	}
	return n, problems
}
