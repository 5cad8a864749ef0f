package rank

import (
	"context"
	"log/slog"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// Nearest is how many artifacts a search finds by meaning: everything is near
	// everything to some degree.
	Nearest = 100
	// Reranked is how many hits a model orders anew.
	Reranked = 50
)

// Models are what a server searches by meaning with. The zero value has none.
type Models struct {
	Embed  *embed.Client   // nil for none
	Rerank *embed.Reranker // nil for none
	Log    *slog.Logger
}

// Vectors says which vectors a store has.
type Vectors struct {
	Model string // by which all are made; "" while there are none to search by
	Dims  int
	// Building is true while the first ones are made.
	Building bool
}

// A Plan is how a search is run.
type Plan struct {
	*verb.SearchPlan
	Mode     string       // lexical, semantic, hybrid or structured
	Vector   embed.Vector // of the words, in the modes semantic and hybrid
	Model    string       // by which the vector was made
	Degraded []verb.Degradation
	models   *Models
}

// Ranked reports whether the search needs [Plan.Search]: any but one by words or by
// a filter alone.
func (p *Plan) Ranked() bool { return p.Vector != nil || p.Rerank }

// Prepare decides what a search runs, and asks the model about its words. Only auto
// does with less than it could.
func (m *Models) Prepare(ctx context.Context, sp *verb.SearchPlan, have Vectors) (*Plan, error) {
	p := &Plan{SearchPlan: sp, Mode: verb.SearchLexical, models: m}
	if sp.Rerank && m.Rerank == nil {
		return nil, notConfigured("/rerank", "no model that ranks anew is configured; leave rerank out")
	}
	insist := false
	switch sp.Mode {
	case verb.SearchStructured:
		p.Mode = verb.SearchStructured
		return p, nil
	case verb.SearchLexical:
		return p, nil
	case verb.SearchSemantic, verb.SearchHybrid:
		insist = true
	}
	var less *artifact.Error // why it is less than was asked for
	switch {
	case have.Model != "" && m.Embed == nil:
		less = notConfigured("/mode", "this server has vectors and no endpoint to ask what the words mean")
	case m.Embed == nil && !insist:
		return p, nil // nothing is less than it could be
	case m.Embed == nil:
		less = notConfigured("/mode", "a search by meaning needs embeddings, and none are configured; mode lexical finds words")
	case have.Model == "" && have.Building:
		less = building()
	case have.Model == "":
		less = notConfigured("/mode", "there are no vectors: the hub makes none")
	default:
		v, err := m.Embed.Query(ctx, have.Model, have.Dims, sp.Words.Meaning(), insist)
		if err == nil {
			p.Vector, p.Model = v, have.Model
			if p.Mode = sp.Mode; !insist {
				p.Mode = verb.SearchHybrid
			}
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if m.Log != nil {
			m.Log.WarnContext(ctx, "the embeddings endpoint did not answer a search", "err", err)
		}
		less = unavailable("the embeddings endpoint does not answer")
	}
	if insist {
		return nil, less
	}
	p.degrade(less)
	return p, nil
}

// degrade notes why the search is by words alone.
func (p *Plan) degrade(why *artifact.Error) {
	p.Mode = verb.SearchLexical
	p.Degraded = append(p.Degraded, verb.Degradation{Reason: why.Reason, Message: why.Message + ": this search was by words alone"})
}

func notConfigured(path, what string) *artifact.Error {
	return &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonNotConfigured, Message: what,
		Problems: []artifact.Problem{{Path: path, Constraint: "configured", Message: what}},
	}
}

func building() *artifact.Error {
	const what = "vectors are being made for the first time; it goes on by itself"
	return &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonEmbeddingsBuilding, Message: what, Retryable: true, RetryAfterMS: 10_000,
		Problems: []artifact.Problem{{Path: "/mode", Constraint: "available", Message: what}},
	}
}

func unavailable(what string) *artifact.Error {
	return &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonModelUnavailable, Message: what, Retryable: true, RetryAfterMS: 10_000,
		Problems: []artifact.Problem{{Path: "/mode", Constraint: "available", Message: what}},
	}
}

// A Store finds artifacts that the caller may see and that the request's types, scope
// and filter let pass.
type Store interface {
	// ByWords returns the first that hold the words, the best first.
	ByWords(ctx context.Context, limit int) ([]Candidate, error)
	// Near returns the first by meaning, the nearest first, without what the words
	// exclude. It returns false when there are more to compare than it does.
	Near(ctx context.Context, p *Plan, limit int) (found []Candidate, ok bool, err error)
	// Hits returns candidates as they are now, in their order, with their contents;
	// without those that went away meanwhile.
	Hits(ctx context.Context, some []Candidate, out *verb.SearchResponse) error
	// Text returns what a model is told of a hit; false for one that no model is told
	// of.
	Text(hit *verb.SearchHit) (string, bool)
}

// Search runs a search that is [Plan.Ranked], but for what a store adds to hits.
func (p *Plan) Search(ctx context.Context, s Store) (out verb.SearchResponse, err error) {
	found, err := p.find(ctx, s)
	if err != nil {
		return out, err
	}
	if len(p.Facets) > 0 {
		count := verb.NewFacetCounter(p.SearchPlan)
		for i := range found {
			count.Add(found[i].Type, found[i].State, found[i].Scope)
		}
		count.Finish(&out)
	}
	counted := out.Warnings
	if p.Rerank {
		if found, err = p.rerank(ctx, s, found, &out); err != nil {
			return out, err
		}
	}
	page := found[min(p.Offset, len(found)):min(p.Offset+p.ReadSize(), len(found), verb.MaxSearchDepth+1)]
	if err := s.Hits(ctx, page, &out); err != nil {
		return out, err
	}
	out.ModeUsed = p.Mode
	out.Degraded = append(out.Degraded, p.Degraded...)
	p.Finish(&out)
	out.Warnings = append(out.Warnings, counted...)
	return out, nil
}

// find returns all that is found, as deep as pages and counts go.
func (p *Plan) find(ctx context.Context, s Store) (found []Candidate, err error) {
	var near, worded []Candidate
	if p.Vector != nil {
		var ok bool
		if near, ok, err = s.Near(ctx, p, Nearest); err != nil {
			return nil, err
		}
		if !ok {
			why := unavailable("there are more vectors than the hub compares without the vector extension of PostgreSQL")
			if p.SearchPlan.Mode == verb.SearchSemantic || p.SearchPlan.Mode == verb.SearchHybrid {
				return nil, why
			}
			p.degrade(why)
		}
	}
	if p.Mode == verb.SearchSemantic {
		return near, nil
	}
	depth := verb.MaxSearchDepth + 1
	if len(p.Facets) > 0 {
		depth = verb.MaxFacetMatches + 1
	}
	if worded, err = s.ByWords(ctx, depth); err != nil || p.Mode == verb.SearchLexical {
		return worded, err
	}
	return Fuse(worded, near), nil
}

// rerank has the model order the first hits. When it does not answer they stay as
// they are. The scores are then of places.
func (p *Plan) rerank(ctx context.Context, s Store, found []Candidate, out *verb.SearchResponse) ([]Candidate, error) {
	first := found[:min(Reranked, len(found))]
	if len(first) == 0 {
		return found, nil
	}
	var hits verb.SearchResponse
	if err := s.Hits(ctx, first, &hits); err != nil {
		return nil, err
	}
	texts := make([]string, len(hits.Hits))
	for i := range hits.Hits {
		var may bool
		if texts[i], may = s.Text(&hits.Hits[i]); !may {
			out.Degraded = append(out.Degraded, verb.Degradation{
				Reason: "rerank_unavailable", Message: "no model is told of what is for its participants alone: the hits are in the order in which they were found",
			})
			return found, nil
		}
	}
	order, err := p.models.Rerank.Order(ctx, p.Words.Meaning(), texts)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if p.models.Log != nil {
			p.models.Log.WarnContext(ctx, "the rerank endpoint did not answer a search", "err", err)
		}
		out.Degraded = append(out.Degraded, verb.Degradation{
			Reason: "rerank_unavailable", Message: "the rerank endpoint does not answer: the hits are in the order in which they were found",
		})
		return found, nil
	}
	byRef := make(map[[2]string]Candidate, len(first))
	for _, c := range first {
		byRef[c.key()] = c
	}
	all := make([]Candidate, 0, len(found))
	for _, i := range order {
		a := &hits.Hits[i].Artifact
		all = append(all, byRef[[2]string{a.Type, a.ID}])
	}
	out.Reranked = len(order)
	all = append(all, found[len(first):]...)
	for i := range all {
		all[i].Score = 1 / float64(fuseRank+i+1)
	}
	return all, nil
}
