package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/scidex-ai/substrate/internal/postgres"
)

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	release, err := postgres.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = postgres.Lock(dir)
	if !isInUse(err, os.Getpid()) {
		t.Fatalf("second Lock: error = %v, want an InUseError with pid %d", err, os.Getpid())
	}
	want := fmt.Sprintf("data directory %s is in use by another scidex (pid %d)", dir, os.Getpid())
	if got := err.Error(); got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
	release()
	release, err = postgres.Lock(dir)
	if err != nil {
		t.Fatalf("Lock after release: %v", err)
	}
	release()
}
