package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// token measures the check of a caller's token: one seen before against its
// target, and a new one against the bare signature check of the same text.
func (b *bench) token(ctx context.Context) error {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	key := verb.NewKey(private)
	keys := verb.KeysOf(verb.JWKS{Keys: []verb.JWK{key.PublicJWK()}})
	access := new(verb.Directory)
	access.SetAgent("grace", true)
	c := verb.Claims{
		ActorKind: "ai_local", Permissions: []string{verb.Contributor}, SessionID: "0190d9f2-7f5e-7cc1-9a57-0d51f4a2b111",
		DelegationChain: []artifact.DelegationStep{{ActorID: "grace", SessionID: "0190d9f2-7f5e-7cc1-9a57-0d51f4a2b000"}},
		TaskID:          "task-1", Scopes: []string{"lab-a"},
	}
	c.Subject = "loader"
	tokens := make([]string, 12_288) // more than a verifier remembers
	for i := range tokens {
		var err error
		if tokens[i], err = key.Sign(c, time.Hour); err != nil {
			return err
		}
	}
	token, turn := tokens[0], 0
	parts := strings.Split(token, ".")
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return errors.New("an Ed25519 key without a public half")
	}
	signed := []byte(parts[0] + "." + parts[1])

	warm, cold := &verb.Verifier{Keys: keys, Access: access}, &verb.Verifier{Keys: keys, Access: access}
	cached, fresh := row{name: "seen before", unit: "µs"}, row{name: "new", unit: "µs"}
	for range b.rounds {
		took, err := b.micros(func() error {
			if !ed25519.Verify(public, signed, signature) {
				return errors.New("the signature is not valid")
			}
			return nil
		}, func() error {
			_, err := warm.Verify(ctx, token)
			return err
		}, func() error {
			turn = (turn + 1) % len(tokens)
			_, err := cold.Verify(ctx, tokens[turn])
			return err
		})
		if err != nil {
			return err
		}
		cached.value, cached.floor = append(cached.value, took[1]), append(cached.floor, took[0])
		fresh.value, fresh.floor = append(fresh.value, took[2]), append(fresh.floor, took[0])
	}
	return b.table(fmt.Sprintf("Token of %d bytes (floor: ed25519.Verify alone; targets: 3 µs, ratio 1.50)", len(token)), []row{cached, fresh})
}

// micros returns how long a call of each function takes, in µs, over one slice.
// They take turns, so that what else the machine does hits all of them.
func (b *bench) micros(calls ...func() error) ([]float64, error) {
	const batch = 20 // calls between looks at the clock
	took, turns := make([]time.Duration, len(calls)), 0
	for start := time.Now(); time.Since(start) < b.slice; turns++ {
		for i, call := range calls {
			begin := time.Now()
			for range batch {
				if err := call(); err != nil {
					return nil, err
				}
			}
			took[i] += time.Since(begin)
		}
	}
	micros := make([]float64, len(calls))
	for i, d := range took {
		micros[i] = float64(d.Nanoseconds()) / 1e3 / float64(turns*batch)
	}
	return micros, nil
}
