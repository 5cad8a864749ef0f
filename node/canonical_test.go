package node

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// FuzzDecode checks that heads and revisions are read as encoding/json reads
// them, whatever the bytes: what it refuses is refused, and the rest is equal.
func FuzzDecode(f *testing.F) {
	score := 0.25
	at := time.Date(2026, 1, 2, 3, 4, 5, 60e6, time.UTC)
	for _, text := range []string{"plain", "", "é 😀 \u2028", `"quoted"`, "<&>\\u2028", "a\x01b", `,"revision":`} {
		for _, data := range []any{
			replicate.Head{ContentHash: artifact.Hash{1}, CreatedAt: at, CreatedBy: text, ID: text, IsLatest: true, QualityScore: &score, Revision: 7, Title: text, UpdatedAt: at},
			replicate.Head{Title: text},
			replicate.Revision{ContentHash: artifact.Hash{1}, CreatedAt: at, Note: text, Title: text, Provenance: replicate.Provenance{ActorID: text, Delegation: []artifact.DelegationStep{{ActorID: text}}}},
		} {
			raw, _, err := replicate.Encode(data)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var head replicate.Head
		var version revision
		same(t, data, &head, func() (any, error) { h, err := decodeHead(data); return &h, err })
		same(t, data, &version, func() (any, error) { v, err := decodeRevision(data); return &v, err })
	})
}

func same(t *testing.T, data []byte, want any, decode func() (any, error)) {
	t.Helper()
	wantErr := json.Unmarshal(data, want)
	got, err := decode()
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("decode %s: error = %v, and of encoding/json %v", data, err, wantErr)
	}
	if diff := cmp.Diff(want, got); err == nil && diff != "" {
		t.Errorf("decode %s: (-want +got)\n%s", data, diff)
	}
}
