package node_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestEachUpdateIsTold writes one artifact again and again, as fast as it goes, and
// reads its events over sockets that break, while the hub's connections to its
// database are cut and the node is started anew: each update is told, once and in
// order.
func TestEachUpdateIsTold(t *testing.T) {
	n := newNetwork(t)
	write := n.hubClient(verb.Contributor)
	made, err := verb.Create.Call(t.Context(), write, verb.CreateRequest{Type: "gene", ID: "g", Title: "G", Content: json.RawMessage(`{"symbol":"G"}`)})
	if err != nil {
		t.Fatal(err)
	}
	want, base := []string{made.Ref.String()}, made.ContentHash
	var got []string
	cursor := "0"
	const updates = 150
	for i := range updates {
		switch i {
		case 50:
			if _, err := n.db.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()`); err != nil {
				t.Fatal(err)
			}
		case 60, 120:
			got, cursor = n.someEvents(t, got, cursor, 20)
		case 100:
			n.stop()
			n.start(t)
		}
		in := verb.UpdateRequest{Ref: "gene:g", BaseContentHash: base, Title: fmt.Sprint("G ", i)}
		var out verb.WriteResult
		for try := 0; ; try++ { // a cut connection is told as unavailable
			out, err = verb.Update.Call(t.Context(), write, in)
			if err == nil || !artifact.IsCode(err, artifact.CodeUnavailable) || try == 20 {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		want, base = append(want, out.Ref.String()), out.ContentHash
	}
	for len(got) < len(want) {
		got, cursor = n.someEvents(t, got, cursor, min(40, len(want)-len(got)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d events of %d writes of one artifact, or not in order", len(got), len(want))
	}
}
