package verb_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A client writes a gene on a hub that is busy at first, and branches on an error.
func ExampleClient() {
	url, token, stop := aHub()
	defer stop()

	ctx := context.Background()
	c := &verb.Client{URL: url, Token: token, Tries: 3}
	made, err := verb.Create.Call(ctx, c, verb.CreateRequest{
		Type: "gene", ID: "APP", Title: "APP", Content: json.RawMessage(`{"symbol":"APP"}`),
	})
	fmt.Println(made.Ref, err)

	_, err = verb.Get.Call(ctx, c, verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "APQ"}})
	var e *artifact.Error
	if errors.As(err, &e) && e.Code == artifact.CodeNotFound {
		fmt.Println("not there:", e.Details["ref"])
	}
	// Output:
	// gene:APP <nil>
	// not there: gene:APQ
}

// aHub serves two verbs, of which create is busy once.
func aHub() (url, token string, stop func()) {
	r, calls := new(verb.Registry), 0
	verb.Bind(r, verb.Create, func(_ context.Context, in verb.CreateRequest) (out verb.WriteResult, err error) {
		if calls++; calls == 1 {
			return out, &artifact.Error{Code: artifact.CodeUnavailable, Reason: artifact.ReasonBusy, Retryable: true, RetryAfterMS: 1}
		}
		out.Ref = artifact.Ref{Type: in.Type, ID: in.ID}
		return out, nil
	})
	verb.Bind(r, verb.Get, func(_ context.Context, in verb.GetRequest) (verb.GetResponse, error) {
		return verb.GetResponse{}, artifact.NotFound(in.Ref.String())
	})
	key := verb.NewKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	token, err := key.Sign(verb.Claims{ActorKind: "human", Permissions: []string{verb.Contributor}, RegisteredClaims: subject("ada")}, time.Hour)
	if err != nil {
		panic(err)
	}
	srv := httptest.NewServer((&verb.Server{Registry: r, Verifier: &verb.Verifier{Keys: keysOf(key)}}).Handler())
	return srv.URL, token, srv.Close
}
