package hub_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/declared"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		os.Exit(serveChild(url))
	}
	os.Exit(pgtest.Main(m))
}

func initHub(ctx context.Context, db *pgxpool.Pool) error {
	_, err := hub.Init(ctx, db)
	return err
}

// A fixture is a running hub on a database of its own.
type fixture struct {
	*hub.Hub
	db    *pgxpool.Pool
	verbs verb.Invoker // fails the test for an error that a verb does not declare
	stop  func()       // ends Run; it may be called twice
}

func newHub(t testing.TB) *fixture {
	t.Helper()
	return newHubOn(t, pgtest.New(t, initHub))
}

func newHubOn(t testing.TB, db *pgxpool.Pool) *fixture {
	t.Helper()
	return newHubWith(t, hub.Config{DB: db})
}

func newHubWith(t testing.TB, c hub.Config) *fixture {
	t.Helper()
	h, err := hub.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-stopped; err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &fixture{Hub: h, db: c.DB, verbs: declared.Invoker(t, h.Verbs()), stop: stop}
}

// serve serves the fixture over HTTP and returns its URL.
func (f *fixture) serve(t testing.TB) string {
	t.Helper()
	done := make(chan struct{})
	srv := httptest.NewServer(declared.Handler(t, f.Verbs(), f.Handler(nil, done)))
	t.Cleanup(func() {
		close(done)
		srv.Close()
	})
	return srv.URL
}

func (f *fixture) token(t testing.TB, sub string, permissions ...string) string {
	t.Helper()
	c := verb.Claims{ActorKind: "human", Permissions: permissions}
	c.Subject = sub
	token, err := f.SigningKey().Sign(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// as returns a context of a caller with these permissions.
func as(ctx context.Context, sub string, permissions ...string) context.Context {
	return verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: sub, Kind: "human"}, Permissions: permissions, SessionID: "s", RequestID: uuid.NewString(), Now: artifact.Now(),
	})
}

// contributor is as with the permission to write.
func contributor(ctx context.Context) context.Context { return as(ctx, "ada", verb.Contributor) }

func content(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func hypothesis(id, statement string) verb.CreateRequest {
	return verb.CreateRequest{Type: "hypothesis", ID: id, Title: "About " + id, Content: content(map[string]any{"statement": statement})}
}

func (f *fixture) mustCreate(t *testing.T, in verb.CreateRequest) verb.WriteResult {
	t.Helper()
	out, err := verb.Create.Call(contributor(t.Context()), f.verbs, in)
	if err != nil {
		t.Fatalf("create %s:%s: %v", in.Type, in.ID, err)
	}
	return out
}

func (f *fixture) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := f.db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
