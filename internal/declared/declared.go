// Package declared fails a test in which a verb answers with an error that it does
// not declare, or with a status that is not that error's. Tests that call many
// verbs run through it: [Invoker] in process, [Handler] over HTTP.
package declared

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// Invoker runs verbs as r does.
func Invoker(t testing.TB, r *verb.Registry) verb.Invoker {
	t.Helper()
	return invoker{t, r}
}

type invoker struct {
	t testing.TB
	*verb.Registry
}

// Invoke implements [verb.Invoker].
func (i invoker) Invoke(ctx context.Context, name string, in, out any) error {
	err := i.Registry.Invoke(ctx, name, in, out)
	if err != nil {
		check(i.t, i.Registry, name, artifact.AsError(err))
	} else if b, ok := out.(*verb.BatchResult); ok {
		checkItems(i.t, i.Registry, b)
	}
	return err
}

// Handler serves as next does.
func Handler(t testing.TB, r *verb.Registry, next http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, ok := strings.CutPrefix(req.URL.Path, verb.PathPrefix)
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		seen := &recorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, req)
		if seen.status == http.StatusOK {
			var b verb.BatchResult
			if name == verb.Batch.Name && json.Unmarshal(seen.body.Bytes(), &b) == nil {
				checkItems(t, r, &b)
			}
			return
		}
		e := new(artifact.Error)
		if err := json.Unmarshal(seen.body.Bytes(), e); err != nil {
			t.Errorf("%s answered %d with what is no error: %s", name, seen.status, seen.body.Bytes())
			return
		}
		check(t, r, name, e)
		if f, _ := verb.FailureOf(e); f.Status != seen.status {
			t.Errorf("%s answered %v with the status %d, want %d", name, e, seen.status, f.Status)
		}
	})
}

type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

// Unwrap lets streams flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func checkItems(t testing.TB, r *verb.Registry, b *verb.BatchResult) {
	t.Helper()
	for _, item := range b.Items {
		if item.Error != nil {
			check(t, r, verb.Batch.Name, item.Error)
		}
	}
}

func check(t testing.TB, r *verb.Registry, name string, e *artifact.Error) {
	t.Helper()
	if !r.Declares(name, e) {
		t.Errorf("%s answered what it does not declare in verb/errors.go: retryable %t, %v", name, e.Retryable, e)
	}
}
