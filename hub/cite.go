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
		problems = append(problems, artifact.Problem{Path: "/paper_pmid", Constraint: "pmid", Message: "a PubMed id is 1 to 8 digits, such as 31452104", Value: artifact.Received(in.PMID)})
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
	n.share[o.from.Current()] = true
	n.types[o.from.Type] = true
}

var _ loader = (*citeOp)(nil)

// load implements loader: it locks the paper and looks for the link.
func (o *citeOp) load(ctx context.Context, db querier, s *state) error {
	from, ok := s.heads[o.from.Current()]
	if !ok {
		return nil
	}
	id := s.papers[o.paper][from.Scope]
	if id == "" {
		id = s.papers[o.paper][artifact.Commons]
	}
	if id == "" {
		return nil
	}
	o.to = artifact.Ref{Type: paperType, ID: id}
	o.toText = o.to.String()
	rows, err := db.Query(ctx, lockShareQuery, []string{o.to.Type}, []string{o.to.ID})
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := s.scanHeads(rows); err != nil {
		return err
	}
	key := triple{o.from.Current(), o.predicate, o.to}
	return s.readLinks(ctx, db, []triple{key})
}

func (o *citeOp) decide(s *state) error {
	if _, err := s.visible(o.from); err != nil {
		return err
	}
	if s.heads[o.to.Current()] == nil {
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
