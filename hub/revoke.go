package hub

import (
	"context"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// longestToken is how long a revocation of a token is kept whose end is not known.
const longestToken = 366 * 24 * time.Hour

// tokensRevoke answers the verb of that name.
func (h *Hub) tokensRevoke(ctx context.Context, in verb.TokensRevokeRequest) (out verb.RevocationResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	o := &revokeOp{requestID: c.RequestID}
	switch {
	case in.Session && (in.TokenID != "" || in.Agent != ""), in.TokenID != "" && in.Agent != "" || in.Issuer != "" && in.TokenID == "":
		return out, artifact.Invalid(artifact.Problem{Constraint: "exactly_one", Message: "name a token by token_id and perhaps issuer, or an agent, or neither for the token of this request"})
	case in.Agent != "" && !verb.ValidAgent(in.Agent):
		return out, artifact.Invalid(artifact.Problem{Path: "/agent", Constraint: "agent_id", Message: "an agent's id is 1 to 200 printable ASCII characters without space", Value: artifact.Received(in.Agent)})
	case in.Agent != "":
		// Tokens carry whole seconds: those of the second that is running end too.
		o.agent = in.Agent
		o.data = replicate.Revocation{Of: replicate.OfAgent, Before: c.Now.Truncate(time.Second).Add(time.Second), Hash: verb.AgentHash(in.Agent)}
		if in.Agent != c.Actor.ID {
			err = c.Need(artifact.Commons, "ending another's tokens", verb.Admin)
		}
	case in.TokenID != "":
		id := verb.TokenID{Issuer: in.Issuer, ID: in.TokenID}
		o.data = replicate.Revocation{Of: replicate.OfToken, Before: c.Now.Add(longestToken), Hash: id.Hash()}
		if id.Hash() != c.TokenID.Hash() {
			err = c.Need(artifact.Commons, "ending another token", verb.Admin)
		}
	case in.Session && c.TokenID.Session != "":
		o.data = replicate.Revocation{Of: replicate.OfToken, Before: c.Now.Add(longestToken), Hash: c.TokenID.SessionHash()}
	case c.TokenID.ID == "" || in.Session:
		return out, artifact.Invalid(artifact.Problem{Path: "/token_id", Constraint: "required", Message: "this request has no token of its own that could be ended"})
	default:
		o.data = replicate.Revocation{Of: replicate.OfToken, Before: c.Expires, Hash: c.TokenID.Hash()}
	}
	if err != nil {
		return out, err
	}
	o.data.Before = o.data.Before.UTC().Truncate(time.Millisecond)
	return single[verb.RevocationResult](ctx, h, c, &writeRequest{
		verb: verb.TokensRevoke.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) { return []op{o}, nil },
	})
}

// A revokeOp ends tokens.
type revokeOp struct {
	data      replicate.Revocation
	agent     string // "" for a single token
	requestID string
}

func (o *revokeOp) needs(*needs) {}

func (o *revokeOp) decide(s *state) error {
	const upsert = `
		INSERT INTO revocation (hash, agent, before, created_at, created_by) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (hash) DO UPDATE SET before = greatest(revocation.before, excluded.before)`
	s.also(upsert, o.data.Hash[:], o.agent, o.data.Before, s.caller.Now, s.caller.Actor.ID)
	ref := replicate.KindRevocation + ":" + o.data.Hash.String()[len("sha256:"):]
	s.rows.internal = false
	return s.rows.put(artifact.Commons, replicate.KindRevocation, ref, 1, noHash, o.data, nil)
}

func (o *revokeOp) answer(seq artifact.Seq, token string) any {
	r := &verb.RevocationResult{Revoked: o.data.Hash.String(), Receipt: verb.NewReceipt(o.requestID)}
	r.Place(seq, token, "")
	return r
}
