package hub

import (
	"context"
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// maxCited bounds the texts of a citation, in bytes.
const maxCited = 4096

// cite answers the verb of that name.
func (h *Hub) cite(ctx context.Context, in verb.CiteRequest) (out verb.LinkResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.LinkResult](ctx, h, c, &writeRequest{
		verb: verb.Cite.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, err := h.newCite(c, &in)
			return []op{o}, err
		},
	})
}

// A citeOp links an artifact to the paper that a PubMed id means. Which that is,
// is known only once it is read.
type citeOp struct {
	*linkOp
	paper citation
}

func (h *Hub) newCite(c *verb.Caller, in *verb.CiteRequest) (*citeOp, error) {
	var problems []artifact.Problem
	pmid, ok := artifact.CitePMID.Normalize(in.PMID)
	if !ok {
		p := artifact.Problem{Path: "/paper_pmid", Constraint: "pmid", Message: "a PubMed id is 1 to 8 digits and does not begin with 0, such as 31452104", Value: artifact.Received(in.PMID)}
		if meant, ok := artifact.CitePMID.Meant(in.PMID); ok { // PMID:31452104
			p.Suggestion = artifact.Received(meant)
		}
		problems = append(problems, p)
	}
	evidence := make(map[string]string)
	for name, text := range map[string]string{"span": in.Span, "claim": in.Claim} {
		if len(text) > maxCited {
			problems = append(problems, artifact.Problem{Path: "/" + name, Constraint: "max_length", Message: "at most 4096 bytes"})
		}
		if text != "" {
			evidence[name] = text
		}
	}
	spec := verb.LinkSpec{Predicate: "cites", To: "paper:PMID:" + pmid}
	if len(evidence) > 0 {
		raw, err := json.Marshal(evidence)
		if err != nil {
			return nil, err
		}
		spec.Evidence = raw
	}
	l, faults := h.newLink(&verb.LinkRequest{From: in.Ref, LinkSpec: spec}, "")
	for _, p := range faults {
		if p.Path == "/from" {
			p.Path = "/ref"
		}
		if p.Path != "/to" { // of a bad PubMed id, which was told
			problems = append(problems, p)
		}
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	l.requestID = c.RequestID
	return &citeOp{linkOp: l, paper: citation{Kind: artifact.CitePMID, ID: pmid}}, nil
}

// mayShare implements sharer: the paper is locked once it is known.
func (o *citeOp) mayShare() bool { return false }

func (o *citeOp) needs(n *needs) {
	n.cited[o.paper] = true
	if o.from.ID != "" {
		n.share[o.from.Current()] = true
		n.types[o.from.Type] = true
	}
}

var _ reader = (*citeOp)(nil)

// reads implements reader: it locks the papers that may be meant and looks for the
// link.
func (o *citeOp) reads(s *state, round readRound, r *reads) {
	if round != roundFind {
		return
	}
	for _, scope := range s.scopes {
		if id := s.papers[paperIn{o.paper, scope}]; id != "" {
			r.share[artifact.Ref{Type: paperType, ID: id}] = true
		}
	}
	for _, key := range o.mayMake(s) {
		r.links[key] = true
	}
}

// answer tells of a link in the words of a citation.
func (o *citeOp) answer(seq artifact.Seq, token string) any {
	r := o.linkOp.answer(seq, token)
	if l, ok := r.(*verb.LinkResult); ok {
		for i, p := range l.Warnings {
			if p.Path == "/evidence" {
				l.Warnings[i].Path, l.Warnings[i].Message = "", "the citation was there, with another span or claim, and is written once: unlink it first to say this"
			}
		}
	}
	return r
}

// mayMake implements linkMaker: which paper is meant takes the scope of what cites
// it.
func (o *citeOp) mayMake(s *state) (keys []triple) {
	if o.from.ID == "" {
		return nil
	}
	for _, scope := range s.scopes {
		if id := s.papers[paperIn{o.paper, scope}]; id != "" {
			keys = append(keys, triple{o.from.Current(), o.predicate, artifact.Ref{Type: paperType, ID: id}})
		}
	}
	return keys
}

func (o *citeOp) decide(s *state) (err error) {
	if o.from, err = s.resolve(o.fromText); err != nil {
		return at(err, "/ref")
	}
	if isEdge(o.from.Type) {
		return artifact.Invalid(fromEdge("/ref", o.fromText))
	}
	from, err := s.visible(o.from, "/ref")
	if err != nil {
		return err
	}
	o.to = artifact.Ref{Type: paperType, ID: s.papers.in(from.Scope, o.paper)}
	o.toText = o.to.String()
	if s.heads[o.to] == nil {
		return &artifact.Error{
			Code: artifact.CodeLinkTargetMissing, Message: "there is no paper with this PubMed id here: create it first",
			Details:  map[string]any{"refs": []string{"paper:PMID:" + o.paper.ID}},
			Problems: []artifact.Problem{{Path: "/paper_pmid", Constraint: artifact.GuardTargets, Message: "no paper here has this PubMed id", Value: artifact.Received(o.paper.ID)}},
		}
	}
	if o.to == o.from.Current() {
		return artifact.Invalid(artifact.Problem{Path: "/paper_pmid", Constraint: "no_self_citation", Message: "a paper does not cite itself"})
	}
	return o.linkOp.decide(s)
}
