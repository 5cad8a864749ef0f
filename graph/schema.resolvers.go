package graph

import (
	"cmp"
	"context"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/graph/internal/generated"
	"github.com/scidex-ai/substrate/graph/transport"
	"github.com/scidex-ai/substrate/graph/view"
	"github.com/scidex-ai/substrate/verb"
)

// Artifact reads what the event happened to, as the replica has it now.
func (r *eventResolver) Artifact(ctx context.Context, obj *view.Event) (view.Artifact, error) {
	ref := obj.Ref()
	if ref == nil || !hasVersions(ref.Type) {
		return nil, nil
	}
	return r.artifact(ctx, ref.Current())
}

func (r *mutationResolver) CreateArtifact(ctx context.Context, input view.CreateArtifactInput) (view.CreateResult, error) {
	req := input.Request()
	res, err := verb.Create.Call(ctx, r.Hub, req)
	if err != nil {
		return r.problem(ctx, err)
	}
	if res.Candidate != nil {
		return view.NewCandidateProposed(res), nil
	}
	if req.DryRun {
		return unwritten(ctx, res, artifact.Artifact{
			Scope: cmp.Or(req.Scope, artifact.Commons), Title: req.Title, State: req.State, Content: req.Content,
		}), nil
	}
	return r.written(ctx, res)
}

func (r *mutationResolver) UpdateArtifact(ctx context.Context, input view.UpdateArtifactInput) (view.UpdateResult, error) {
	req := input.Request()
	res, err := verb.Update.Call(ctx, r.Hub, req)
	if err != nil {
		return r.problem(ctx, err)
	}
	if res.Candidate != nil {
		return view.NewCandidateProposed(res), nil
	}
	if req.DryRun {
		base, err := verb.Get.Call(ctx, r.Hub, verb.GetRequest{Ref: input.Ref.Current()})
		if err != nil {
			return nil, err
		}
		a := base.Artifact
		a.Title, a.State = cmp.Or(req.Title, a.Title), cmp.Or(req.State, a.State)
		a.Content = req.Content // null for a patch: the hub alone knows what it makes
		return unwritten(ctx, res, a), nil
	}
	return r.written(ctx, res)
}

func (r *queryResolver) Artifact(ctx context.Context, ref artifact.Ref) (view.Artifact, error) {
	return r.artifact(ctx, ref)
}

func (r *queryResolver) Artifacts(ctx context.Context, filter *view.ArtifactFilter, first *int, after *string) (*view.ArtifactConnection, error) {
	req, err := listRequest(filter, first, after)
	if err != nil {
		return nil, err
	}
	req.IncludeContent = selects(ctx, "content")
	page, err := verb.List.Call(ctx, r.Reads, req)
	if err != nil {
		return nil, err
	}
	return connection(page, req), nil
}

func (r *queryResolver) Replica(ctx context.Context) (*view.Replica, error) {
	if _, err := verb.CallerFrom(ctx); err != nil {
		return nil, err
	}
	status, err := r.Resolver.Replica.Status(ctx)
	return &status, err
}

func (r *subscriptionResolver) Events(ctx context.Context, types []string, since *artifact.Seq, maxBatch *int) (<-chan *view.EventBatch, error) {
	size, err := intArg(maxBatch, 100, maxBatchLimit, "maxBatch")
	if err != nil {
		return nil, err
	}
	events, err := r.Resolver.Replica.Subscribe(ctx, since, types, size)
	if err != nil {
		return nil, err
	}
	batches := make(chan *view.EventBatch)
	go pushEvents(ctx, events, batches, transport.Fail)
	return batches, nil
}

func (r *Resolver) Event() generated.EventResolver { return &eventResolver{r} }

func (r *Resolver) Mutation() generated.MutationResolver { return &mutationResolver{r} }

func (r *Resolver) Query() generated.QueryResolver { return &queryResolver{r} }

func (r *Resolver) Subscription() generated.SubscriptionResolver { return &subscriptionResolver{r} }

type (
	eventResolver        struct{ *Resolver }
	mutationResolver     struct{ *Resolver }
	queryResolver        struct{ *Resolver }
	subscriptionResolver struct{ *Resolver }
)
