package node_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestFieldLesson17 checks that opening a replica and answering from it reads about
// as much of a large file as of a small one: a restart does not depend on size.
func TestFieldLesson17(t *testing.T) {
	if _, err := os.Stat("/proc/self/io"); err != nil {
		t.Skip("this system does not count what a process reads")
	}
	small, large := restartReads(t, 3_000), restartReads(t, 12_000) // the latest events are read of both
	if large > small+2<<20 {                                        // of the WAL, which is written back, either may have more
		t.Errorf("a restart reads %d bytes of a replica of 3,000 artifacts and %d of one of 12,000", small, large)
	}
}

// restartReads returns how many bytes a process reads to open a replica of n
// artifacts and to answer a get.
func restartReads(t *testing.T, n int) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "replica.db")
	s, f := openStore(t, path), newFeed(t, 17)
	if err := s.Hello(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	f.body = 1000
	for i := range n {
		apply(t, s, f.batch(f.write("paper", fmt.Sprint("p", i), "one")))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := bytesRead(t)
	s = openStore(t, path)
	r, ctx := registry(s), asAda(t.Context())
	if _, err := verb.Get.Call(ctx, r, verb.GetRequest{Ref: artifact.Ref{Type: "paper", ID: fmt.Sprint("p", n/2)}}); err != nil {
		t.Fatal(err)
	}
	read := bytesRead(t) - before
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d artifacts, %d bytes: %d read", n, info.Size(), read)
	return read
}

func bytesRead(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		if text, ok := bytes.CutPrefix(line, []byte("rchar: ")); ok {
			n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no rchar in /proc/self/io")
	return 0
}
