package hub_test

import (
	"slices"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

func kids(set verb.JWKS) []string {
	var ids []string
	for _, k := range set.Keys {
		ids = append(ids, k.ID)
	}
	return ids
}

func TestRotateKey(t *testing.T) {
	f := newHub(t)
	v := f.Verifier()
	before, old := f.SigningKey().ID, f.token(t, "ada", verb.Viewer)
	next, err := hub.RotateKey(t.Context(), f.db, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := hub.SigningKey(t.Context(), f.db); err != nil || key.ID != next || next == before {
		t.Fatalf("SigningKey = %v, %v, want %s", key, err, next)
	}
	t.Run("another process's key is taken at once", func(t *testing.T) {
		key, err := hub.SigningKey(t.Context(), f.db)
		if err != nil {
			t.Fatal(err)
		}
		c := verb.Claims{ActorKind: "human"}
		c.Subject = "grace"
		token, err := key.Sign(c, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new key is taken", func() bool { // readings are a second apart
			_, err := v.Verify(t.Context(), token)
			return err == nil
		})
	})
	if got := f.SigningKey().ID; got != next {
		t.Errorf("the hub signs with %s, want %s", got, next)
	}
	if got := kids(f.JWKS()); !slices.Equal(got, []string{next, before}) {
		t.Errorf("key set = %v, want %v", got, []string{next, before})
	}
	if _, err := v.Verify(t.Context(), old); err != nil {
		t.Errorf("a token from before: %v", err)
	}
	t.Run("the old key ends with the overlap", func(t *testing.T) {
		if _, err := f.db.Exec(t.Context(), `UPDATE signing_key SET ends_at = now() WHERE kid = $1`, before); err != nil {
			t.Fatal(err)
		}
		h, err := hub.Open(t.Context(), hub.Config{DB: f.db})
		if err != nil {
			t.Fatal(err)
		}
		if got := kids(h.JWKS()); !slices.Equal(got, []string{next}) {
			t.Errorf("key set = %v, want %s alone", got, next)
		}
		if _, err := h.Verifier().Verify(t.Context(), old); artifact.AsError(err).Reason != artifact.ReasonUnauthenticated {
			t.Errorf("Verify of an old token: error = %v, want unauthenticated", err)
		}
	})
	t.Run("a running hub ends it by itself", func(t *testing.T) {
		h, err := hub.Open(t.Context(), hub.Config{DB: f.db})
		if err != nil {
			t.Fatal(err)
		}
		v := h.Verifier()
		c := verb.Claims{ActorKind: "human"}
		c.Subject = "ada"
		token, err := h.SigningKey().Sign(c, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hub.RotateKey(t.Context(), f.db, 3*time.Second); err != nil {
			t.Fatal(err)
		}
		stranger := verb.NewKey(f.SigningKey().Private)
		stranger.ID = "0000000000000000"
		unknown, _ := stranger.Sign(c, time.Hour)
		eventually(t, "the keys are read anew", func() bool { // an unknown key makes the hub read the table, without Run
			_, _ = v.Verify(t.Context(), unknown)
			return len(h.JWKS().Keys) == 2
		})
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("during the overlap: %v", err)
		}
		eventually(t, "the retired key has ended", func() bool {
			_, err := v.Verify(t.Context(), token)
			return artifact.AsError(err).Reason == artifact.ReasonUnauthenticated
		})
	})
}

func TestRetireKey(t *testing.T) {
	db := pgtest.New(t, initHub)
	h, err := hub.Open(t.Context(), hub.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	first := h.SigningKey().ID
	if err := hub.RetireKey(t.Context(), db, first); err != nil {
		t.Fatal(err)
	}
	key, err := hub.SigningKey(t.Context(), db)
	if err != nil || key.ID == first {
		t.Fatalf("SigningKey = %v, %v, want a new one", key, err)
	}
	keys, err := hub.Keys(t.Context(), db)
	if err != nil || len(keys) != 2 || keys[0].ID != key.ID || keys[0].State != hub.KeySigning || keys[1].State != hub.KeyEnded || keys[1].EndsAt == nil {
		t.Errorf("Keys = %+v, %v", keys, err)
	}
	if err := hub.RetireKey(t.Context(), db, first); err != nil {
		t.Errorf("retiring it again: %v", err)
	}
	if again, err := hub.SigningKey(t.Context(), db); err != nil || again.ID != key.ID {
		t.Errorf("SigningKey = %v, %v, want %s still", again, err, key.ID)
	}
	if err := hub.RetireKey(t.Context(), db, "nonesuch"); err == nil {
		t.Error("RetireKey of no key succeeded")
	}
	if _, err := hub.RotateKey(t.Context(), db, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := hub.RetireKey(t.Context(), db, key.ID); err != nil { // one that only verifies
		t.Fatal(err)
	}
	if keys, err = hub.Keys(t.Context(), db); err != nil || len(keys) != 3 || keys[1].ID != key.ID || keys[1].State != hub.KeyEnded {
		t.Errorf("Keys = %+v, %v", keys, err)
	}
}

func TestMayDelegate(t *testing.T) {
	db := pgtest.New(t, initHub)
	for id, may := range map[string]bool{"grace": true, "bot": false} {
		if _, err := db.Exec(t.Context(), `INSERT INTO agent (id, kind, may_delegate, created_at, updated_at) VALUES ($1, 'human', $2, now(), now())`, id, may); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		agents []string
		may    bool
	}{
		"one who may":          {[]string{"grace"}, true},
		"the same twice":       {[]string{"grace", "grace"}, true},
		"one who may not":      {[]string{"grace", "bot"}, false},
		"one who is not known": {[]string{"grace", "alan"}, false},
	} {
		if err := hub.MayDelegate(t.Context(), db, tt.agents); (err == nil) != tt.may {
			t.Errorf("%s: error = %v, want allowed %t", name, err, tt.may)
		}
	}
}
