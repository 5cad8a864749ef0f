package node_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
)

// TestErase removes an artifact while another process reads the file: its bytes are
// gone at the latest when the store is opened next.
func TestErase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.db")
	s, err := node.OpenStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Hello(t.Context(), replicate.Hello{HubID: "h", Epoch: 1, Scopes: []string{artifact.Commons}}); err != nil {
		t.Fatal(err)
	}
	f := newFeed(t, 1)
	const secret = "a secret title"
	apply(t, s, f.batch(f.write("gene", "g1", secret)))
	reader, err := sql.Open("sqlite3", path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tx, err := reader.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM artifact").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	apply(t, s, f.batch(f.remove("gene:g1")))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	holds := func() bool {
		for _, suffix := range []string{"", "-wal"} {
			raw, err := os.ReadFile(path + suffix)
			if err == nil && bytes.Contains(raw, []byte(secret)) {
				return true
			}
		}
		return false
	}
	if !holds() {
		t.Fatal("the reader does not keep the old pages, so this tests nothing")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	openStore(t, path)
	if holds() {
		t.Error("an artifact that was removed is still in the file")
	}
}
