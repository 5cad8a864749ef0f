package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	commentType = "comment"
	maxComment  = 65_536 // characters
	maxKind     = 64     // bytes
	maxHeadline = 80     // characters of a comment's title
)

// comment answers the verb of that name.
func (h *Hub) comment(ctx context.Context, in verb.CommentRequest) (out verb.WriteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: verb.Comment.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, err := h.newComment(c, &in)
			return []op{o}, err
		},
	})
}

// A commentOp makes a comment with its links. Its scope is the target's, unless
// told, and known only once that is read.
type commentOp struct {
	*createOp
	in     *verb.CommentRequest
	target artifact.Ref
	parent artifact.Ref // the comment that it answers; zero for none
	local  string       // id within the scope
}

func (h *Hub) newComment(c *verb.Caller, in *verb.CommentRequest) (*commentOp, error) {
	var problems []artifact.Problem
	target, faults := refOrAlias(in.Ref, "/ref")
	problems = append(problems, faults...)
	if n := utf8.RuneCountInString(in.Body); n > maxComment || artifact.IsBlank(in.Body) {
		problems = append(problems, artifact.Problem{Path: "/body", Constraint: "length", Message: "a comment is 1 to 65,536 characters, some of which can be seen"})
	}
	if in.Kind != "" && (len(in.Kind) > maxKind || artifact.IsBlank(in.Kind) || strings.ContainsAny(in.Kind, "\n\r")) {
		problems = append(problems, artifact.Problem{Path: "/kind", Constraint: "length", Message: "a kind of comment is one line of 1 to 64 bytes, such as question", Value: artifact.Received(in.Kind)})
	}
	links := []verb.LinkSpec{{Predicate: commentsOn, To: in.Ref}}
	var parent artifact.Ref
	if in.ThreadParent != "" {
		parent, faults = refOrAlias(in.ThreadParent, "/thread_parent")
		if problems = append(problems, faults...); parent.Type != "" && parent.Type != commentType {
			problems = append(problems, notAComment(in.ThreadParent))
		}
		links = append(links, verb.LinkSpec{Predicate: repliesTo, To: in.ThreadParent})
	}
	body := map[string]string{"markdown": in.Body}
	if in.Kind != "" {
		body["kind"] = in.Kind
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if problems != nil { // the body may be wrong besides
		return nil, h.doubtfulComment(in, target.Current(), raw, problems)
	}
	made, err := h.newCreate(c, &verb.CreateRequest{Type: commentType, Title: headline(in.Body), Content: raw, Links: links}, verb.Comment.Name, false, nil)
	if err != nil {
		return nil, err
	}
	return &commentOp{createOp: made, in: in, target: target.Current(), parent: parent.Current(), local: made.ref.ID}, nil
}

// doubtfulComment is the refusal of a comment whose body may cite what is not there.
func (h *Hub) doubtfulComment(in *verb.CommentRequest, target artifact.Ref, content []byte, problems []artifact.Problem) error {
	refusal := artifact.Invalid(problems...)
	schema := h.schemas.get(commentType)
	canonical, faults := artifact.Canonical(content, "")
	if schema == nil || faults != nil {
		return refusal
	}
	d := &doubtful{error: refusal, inspection: inspect(schema, canonical, false), scope: in.Scope, place: func(string) string { return "/body" }}
	if in.Scope == "" {
		d.of = target
	}
	return d
}

func notAComment(ref string) artifact.Problem {
	return artifact.Problem{Path: "/thread_parent", Constraint: "to_types", Message: "a comment answers a comment", Value: artifact.Received(ref)}
}

// headline returns the first line of a text as a title.
func headline(text string) string {
	line := strings.Join(strings.Fields(strings.SplitN(strings.TrimSpace(text), "\n", 2)[0]), " ")
	if r := []rune(line); len(r) > maxHeadline {
		return string(r[:maxHeadline-1]) + "…"
	}
	return line
}

func (o *commentOp) needs(n *needs) {
	o.createOp.needs(n)
	if o.target.ID != "" && !isEdge(o.target.Type) {
		n.share[o.target] = true
	}
	if o.in.Scope != "" {
		n.scopes[o.in.Scope] = true
	}
}

// mayShare implements sharer: what is answered is looked up, and may just be made.
func (o *commentOp) mayShare() bool { return o.parent.Type == "" && o.createOp.mayShare() }

// A commentOn is a comment, and what it is on.
type commentOn struct{ comment, on artifact.Ref }

var _ reader = (*commentOp)(nil)

// reads implements reader: whether the comment that this one answers is on the same
// artifact.
func (o *commentOp) reads(s *state, round readRound, r *reads) {
	if round == roundFind && s.heads[o.parent] != nil {
		r.threads[commentOn{o.parent, o.target}] = true
	}
	o.createOp.reads(s, round, r)
}

// resolve finds what aliases name. They are of earlier items: a comment does not
// wait for what it is on.
func (o *commentOp) resolve(s *state) error {
	target, err := s.resolve(o.in.Ref)
	if err != nil {
		return at(err, "/ref")
	}
	if o.target = target.Current(); o.in.ThreadParent == "" {
		return nil
	}
	parent, err := s.resolve(o.in.ThreadParent)
	if err != nil {
		return at(err, "/thread_parent")
	}
	if o.parent = parent.Current(); parent.Type != commentType {
		return artifact.Invalid(notAComment(o.in.ThreadParent))
	}
	return nil
}

// apart reports whether the comment that this one answers is there, and on
// something else.
func (o *commentOp) apart(s *state) bool {
	if o.parent.Type == "" || s.heads[o.parent] == nil || s.threads[commentOn{o.parent, o.target}] {
		return false
	}
	_, made := s.links[triple{o.parent, commentsOn, o.target}] // by an item before
	return !made
}

func (o *commentOp) decide(s *state) error {
	if err := o.resolve(s); err != nil {
		return err
	}
	target, err := s.visible(o.target, "/ref")
	if err != nil {
		return err
	}
	if o.apart(s) {
		return artifact.Invalid(artifact.Problem{
			Path: "/thread_parent", Constraint: "thread", Message: "a comment answers a comment on the same artifact", Value: artifact.Received(o.in.ThreadParent),
		})
	}
	if target.audience == participants {
		return artifact.Invalid(artifact.Problem{Path: "/ref", Constraint: "visibility", Message: "what is for its participants alone is answered by a message, not by a comment"})
	}
	scope := o.in.Scope
	switch {
	case scope == "":
		scope = target.Scope
		s.known[scope] = true
	case !s.known[scope]:
		return noScopeToWrite(scope)
	}
	o.settle(scope)
	if err := o.createOp.decide(s); err != nil {
		return o.placed(err)
	}
	s.rows.internal = false
	about := target.ref()
	if isEdge(about.Type) {
		about = about.Current() // it has one version
	}
	return s.rows.emit(scope, o.target.String(), target.Head.Revision, &eventOf{
		typ: target.Type + ".commented", ref: about.String(), payload: map[string]any{"comment": o.ref.Current().String()},
	})
}

// placed returns an error of making the comment with the paths of the request.
func (o *commentOp) placed(err error) error {
	e, ok := errors.AsType[*artifact.Error](err)
	if !ok {
		return err
	}
	own := *e
	own.Problems = slices.Clone(e.Problems)
	for i, p := range own.Problems {
		switch {
		case strings.HasPrefix(p.Path, "/content"):
			own.Problems[i].Path = "/body"
		case strings.HasPrefix(p.Path, "/links/1"):
			own.Problems[i].Path = "/thread_parent"
		case strings.HasPrefix(p.Path, "/links/0"):
			own.Problems[i].Path = "/ref"
			if p.Constraint == "scope" {
				own.Problems[i].Path = "/scope"
			}
		}
	}
	return &own
}

// settle gives the comment the scope and the id that goes with it.
func (o *commentOp) settle(scope string) {
	o.scope = scope
	id := o.local
	if scope != artifact.Commons {
		id = scope + "/" + o.local
	}
	o.rename(id)
}
