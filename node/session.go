package node

import (
	"context"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/scidex-ai/substrate/verb"
)

// session serves browser sessions. The hub renews and revokes their tokens.
func (n *Node) session(l *verb.Limiter) http.Handler {
	return &verb.Session{
		Verifier: n.verifier, Origins: n.config.Origins, Limiter: l, Log: n.log,
		Mint: n.hub.Renew, Revoke: n.revoke,
	}
}

// revoke ends a token at the hub and waits a moment for the replica to hear of it,
// so that a browser that has signed out is out here too.
func (n *Node) revoke(ctx context.Context, c *verb.Caller) error {
	out, err := verb.TokensRevoke.Call(verb.WithCaller(ctx, c), n.hub, verb.TokensRevokeRequest{Session: c.TokenID.Session != ""})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, consistencyWait)
	defer cancel()
	_ = n.WaitApplied(ctx, out.Seq) // the hub has it: the token ends here as soon as the feed comes
	return nil
}

// limited counts each operation, on a socket or not, as a read or write of its
// caller.
func limited(l *verb.Limiter, present graphql.ErrorPresenterFunc) graphql.OperationMiddleware {
	return func(ctx context.Context, next graphql.OperationHandler) graphql.ResponseHandler {
		c, err := verb.CallerFrom(ctx)
		if err == nil {
			class := verb.ClassRead
			if graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation {
				class = verb.ClassWrite
			}
			err = l.Allow(ctx, c, class, 1)
		}
		if err != nil {
			return graphql.OneShot(&graphql.Response{Errors: gqlerror.List{present(ctx, err)}})
		}
		return next(ctx)
	}
}
