package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// MaxSession is how long a session can be kept up by renewing its token.
const MaxSession = 30 * 24 * time.Hour

// RevokeBy returns a Session's Revoke that calls the verb tokens/revoke.
func RevokeBy(inv Invoker) func(context.Context, *Caller) error {
	return func(ctx context.Context, c *Caller) error {
		_, err := TokensRevoke.Call(WithCaller(ctx, c), inv, TokensRevokeRequest{Session: c.TokenID.Session != ""})
		return err
	}
}

// Renew returns a token with the claims of one that k's network gave and that is
// valid: a new id, as long a life from now on, the same session. The session began
// with its first token; MaxSession later its last one ends.
func (k *Key) Renew(token string) (string, error) {
	t, err := parseToken(token)
	if err != nil || t.claims.IssuedAt == nil || t.claims.ExpiresAt == nil {
		return "", Unauthenticated("the token is not valid")
	}
	c := t.claims
	if len(c.DelegationChain) > 0 {
		return "", &artifact.Error{
			Code: artifact.CodePermissionDenied, Reason: artifact.ReasonRefreshDelegated,
			Message: "a delegated token ends when its delegation does; ask the agent that gave it",
		}
	}
	if c.AuthTime == nil {
		c.AuthTime = c.IssuedAt
	}
	left := time.Until(c.AuthTime.Add(MaxSession))
	if left <= 0 {
		return "", &artifact.Error{
			Code: artifact.CodePermissionDenied, Reason: artifact.ReasonSessionEnded,
			Message: "the session is too old to be renewed; sign in again",
		}
	}
	c.ID = ""
	return k.Sign(c, min(left, c.ExpiresAt.Sub(c.IssuedAt.Time)))
}

// Renew asks the hub for a new token in place of the caller's, for a [Session].
func (c *Client) Renew(ctx context.Context, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+SessionPath+"/refresh", http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		req.Header.Set("X-Request-Id", id)
	}
	if c.Credential != nil {
		credential, err := c.Credential()
		if err != nil {
			return "", fmt.Errorf("sign the node's credential: %w", err)
		}
		req.Header.Set(NodeHeader, credential)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	away := &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonHubUnreachable, Retryable: true, RetryAfterMS: 1000,
		Message: "the hub, which renews tokens, did not answer",
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", away
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", away
	}
	if resp.StatusCode != http.StatusOK {
		return "", readError(resp, raw)
	}
	var info SessionInfo
	if json.Unmarshal(raw, &info) != nil || info.Token == "" {
		return "", away
	}
	return info.Token, nil
}
