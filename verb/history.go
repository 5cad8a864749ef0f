package verb

import (
	"encoding/json"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
)

// History reads the versions of an artifact.
var History = Verb[HistoryRequest, HistoryResponse]{
	Name:    "history",
	Summary: "List the versions of an artifact, newest first, page by page: who wrote each, when and why, and what changed from the one before. Also what became of a link or a signal.",
	Effect:  Read,
	Needs:   toRead,
}

// Bounds of a history.
const (
	// maxPatch is the longest patch that a version is told with, in bytes.
	maxPatch = 64 << 10
	// maxHistoryContent ends a page of versions early, in bytes of their contents.
	maxHistoryContent = 8 << 20
)

// HistoryRequest names an artifact. The hash of a pinned ref counts for nothing.
type HistoryRequest struct {
	Ref            artifact.Ref `json:"ref" jsonschema:"type:id of the artifact; kg_edge:<id> of a link, which may have been taken back, or signal:<id> of a signal"`
	IncludeContent bool         `json:"include_content,omitempty" jsonschema:"true adds each version's content"`
	Limit          int          `json:"limit,omitempty" jsonschema:"versions a page, 1 to 200; the default is 50"`
	Cursor         string       `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, of the same ref"`
}

// HistoryResponse is a page of versions, newest first. It may hold fewer than asked
// for where they are large.
type HistoryResponse struct {
	Ref        string        `json:"ref"` // type:id
	Versions   []PastVersion `json:"versions" jsonschema:"newest first"`
	NextCursor string        `json:"next_cursor,omitempty"` // absent on the last page
	AsOf       artifact.Seq  `json:"as_of"`
}

// A PastVersion is a version, with what changed from the one before it that the
// reader may see.
type PastVersion struct {
	artifact.Artifact
	Note             string          `json:"note,omitempty" jsonschema:"why it was written"`
	PreviousRevision int             `json:"previous_revision,omitempty" jsonschema:"the one before, as far as you may see it"`
	Patch            json.RawMessage `json:"patch,omitempty" jsonschema:"JSON Patch (RFC 6902) of {content, state, title} from the previous revision"`
	PatchOmitted     string          `json:"patch_omitted,omitempty" jsonschema:"why there is no patch: redacted, or too_large, which diff may still tell"`
}

// Reasons for which a version has no patch.
const (
	PatchRedacted = "redacted"
	PatchTooLarge = "too_large"
)

// A HistoryPage gathers the versions of a page as a store reads them, newest first,
// with their contents.
type HistoryPage struct {
	in     *HistoryRequest
	size   int
	bytes  int
	before int
	all    []PastVersion
}

// Page begins a page.
func (r *HistoryRequest) Page() (p HistoryPage, err error) {
	p.in = r
	if p.size, err = PageSize(r.Limit); err != nil {
		return p, err
	}
	last, err := DecodeNameCursor(r.Cursor, r.filter())
	if err != nil || last == "" {
		p.before = maxRevision
		return p, err
	}
	if p.before, err = strconv.Atoi(last); err != nil || p.before < 1 || p.before > maxRevision {
		return p, invalidCursor(r.Cursor, "it was not given by this list")
	}
	return p, nil
}

// maxRevision is above all revisions.
const maxRevision = 1<<31 - 1

func (r *HistoryRequest) filter() string { return "history " + r.Ref.Current().String() }

// HistoryCursor returns the cursor of a page that goes on below a revision.
func HistoryCursor(ref artifact.Ref, revision int) string {
	r := HistoryRequest{Ref: ref}
	return EncodeNameCursor(strconv.Itoa(revision), r.filter())
}

// Before is above the revisions of the page.
func (p *HistoryPage) Before() int { return p.before }

// Rows is how many versions are to be read: one more than the page holds, which
// the last one's patch starts from.
func (p *HistoryPage) Rows() int { return p.size + 1 }

// Add takes the next version. It reports whether it wants more.
func (p *HistoryPage) Add(v PastVersion) bool {
	p.all = append(p.all, v)
	p.bytes += len(v.Content)
	return len(p.all) < p.Rows() && p.bytes < maxHistoryContent
}

// Empty reports whether there was nothing.
func (p *HistoryPage) Empty() bool { return len(p.all) == 0 }

// Finish fills the response in.
func (p *HistoryPage) Finish(out *HistoryResponse) error {
	out.Ref = p.in.Ref.Current().String()
	n := len(p.all)
	if n > p.size || n > 1 && p.bytes >= maxHistoryContent { // the last one only starts the patch of the one after it
		n--
		out.NextCursor = HistoryCursor(p.in.Ref, p.all[n-1].Revision)
	}
	out.Versions = make([]PastVersion, n)
	for i := range n {
		v := &out.Versions[i]
		*v = p.all[i]
		if i+1 < len(p.all) {
			if err := v.from(&p.all[i+1]); err != nil {
				return err
			}
		}
		if !p.in.IncludeContent {
			v.Content, v.UpgradedContent = nil, nil
		}
	}
	return nil
}

// from tells what changed from the version before.
func (v *PastVersion) from(previous *PastVersion) error {
	v.PreviousRevision = previous.Revision
	if len(v.Redaction) > 0 || len(previous.Redaction) > 0 {
		v.PatchOmitted = PatchRedacted
		return nil
	}
	if len(v.Content) == 0 || len(previous.Content) == 0 {
		return nil // of a link that was taken back
	}
	patch, err := artifact.Diff(previous.version(), v.version())
	if len(patch) > maxPatch {
		v.PatchOmitted = PatchTooLarge
		return err
	}
	v.Patch = patch
	return err
}

func (v *PastVersion) version() artifact.Version {
	return artifact.Version{Content: v.Content, State: v.State, Title: v.Title}
}
