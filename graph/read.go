package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/graph/view"
	"github.com/scidex-ai/substrate/verb"
)

// artifact returns a version, nil when the replica has none that the caller may
// see.
func (r *Resolver) artifact(ctx context.Context, ref artifact.Ref) (view.Artifact, error) {
	content := selects(ctx, "content")
	got, err := verb.Get.Call(ctx, r.Reads, verb.GetRequest{Ref: ref, IncludeContent: &content})
	if artifact.IsCode(err, artifact.CodeNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return view.NewArtifact(got.Artifact, ref.IsPinned()), nil
}

// unversioned are the types of ref that name no document.
var unversioned = []string{"kg_edge", "signal", "scope"}

func hasVersions(typ string) bool { return !slices.Contains(unversioned, typ) }

// selects reports whether the field being resolved selects a field of this name
// at any depth.
func selects(ctx context.Context, name string) bool {
	fc := graphql.GetFieldContext(ctx)
	return fc == nil || selectsIn(fc.Field.Selections, name)
}

func selectsIn(set ast.SelectionSet, name string) bool {
	return slices.ContainsFunc(set, func(s ast.Selection) bool {
		switch s := s.(type) {
		case *ast.Field:
			return s.Name == name || selectsIn(s.SelectionSet, name)
		case *ast.InlineFragment:
			return selectsIn(s.SelectionSet, name)
		case *ast.FragmentSpread:
			return s.Definition != nil && selectsIn(s.Definition.SelectionSet, name)
		}
		return false
	})
}

func listRequest(filter *view.ArtifactFilter, first *int, after *string) (req verb.ListRequest, err error) {
	if req.Limit, err = intArg(first, 20, maxFirst, "first"); err != nil {
		return req, err
	}
	if after != nil {
		req.Cursor = *after
	}
	if filter != nil && filter.Type != nil && filter.Type.Eq != nil {
		req.Type = *filter.Type.Eq
	}
	return req, nil
}

// intArg returns an argument from 1 to most.
func intArg(given *int, absent, most int, name string) (int, error) {
	if given == nil {
		return absent, nil
	}
	if *given < 1 || *given > most {
		return 0, artifact.Invalid(artifact.Problem{Path: "/" + name, Constraint: "range", Message: fmt.Sprintf("%s is from 1 to %d", name, most)})
	}
	return *given, nil
}

func connection(page verb.ListResponse, req verb.ListRequest) *view.ArtifactConnection {
	c := &view.ArtifactConnection{
		Edges: make([]*view.ArtifactEdge, len(page.Artifacts)), AsOf: page.AsOf,
		PageInfo: &view.PageInfo{HasNextPage: page.NextCursor != "", HasPreviousPage: req.Cursor != ""},
	}
	for i, a := range page.Artifacts {
		c.Edges[i] = &view.ArtifactEdge{
			Node:   view.NewArtifact(a, false),
			Cursor: verb.EncodeCursor(verb.ListCursor{At: a.CreatedAt, Type: a.Type, ID: a.ID}, req.Type),
		}
	}
	if n := len(c.Edges); n > 0 {
		c.PageInfo.StartCursor, c.PageInfo.EndCursor = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
	}
	return c
}

// pushEvents sends batches until ctx ends, and then closes the channel. When
// reading fails it tells the subscriber why.
func pushEvents(ctx context.Context, events Events, out chan<- *view.EventBatch, fail func(context.Context, error)) {
	defer close(out)
	defer events.Close()
	for {
		page, err := events.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				fail(ctx, err)
			}
			return
		}
		batch := &view.EventBatch{Events: make([]*view.Event, len(page.Events)), Cursor: page.Cursor, CaughtUp: page.CaughtUp, Backlog: page.Backlog}
		for i := range page.Events {
			batch.Events[i] = &view.Event{Event: page.Events[i]}
		}
		select {
		case <-ctx.Done():
			return
		case out <- batch:
		}
	}
}
