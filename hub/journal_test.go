package hub_test

import (
	"slices"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

// TestJournal asks who changed something, and on whose behalf.
func TestJournal(t *testing.T) {
	f := newHub(t)
	c := verb.Claims{
		ActorKind: "ai_local", Permissions: []string{verb.Viewer, verb.Contributor}, SessionID: "s-2", ParentSessionID: "s-1", TaskID: "task-9",
		DelegationChain: []artifact.DelegationStep{{ActorID: "carla", SessionID: "s-0"}, {ActorID: "orchestrator", SessionID: "s-1", TaskID: "task-9"}},
	}
	c.Subject = "agent-7"
	for _, id := range []string{"carla", "orchestrator"} { // both may hand over
		if _, err := verb.AgentsRegister.Call(as(t.Context(), "root", verb.Admin), f.verbs, verb.AgentsRegisterRequest{ID: id, Kind: "human"}); err != nil {
			t.Fatal(err)
		}
	}
	token, err := f.SigningKey().Sign(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	client := &verb.Client{URL: f.serve(t), Token: token}
	made, err := verb.Create.Call(t.Context(), client, hypothesis("h", "x"))
	if err != nil {
		t.Fatal(err)
	}
	f.mustCreate(t, hypothesis("i", "x"))
	if _, err := f.link(contributor(t.Context()), verb.LinkRequest{From: "hypothesis:i", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:h"}}); err != nil {
		t.Fatal(err)
	}
	journal := func(filter hub.JournalFilter) []hub.JournalEntry {
		t.Helper()
		entries, err := hub.Journal(t.Context(), f.db, filter)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	check := func(name string, entries []hub.JournalEntry) {
		t.Helper()
		if len(entries) != 1 {
			t.Fatalf("%s: %d commits, want 1: %+v", name, len(entries), entries)
		}
		e := entries[0]
		if e.Verb != "create" || e.ActorID != "agent-7" || e.ActorKind != "ai_local" || e.SessionID != "s-2" || e.TaskID != "task-9" || e.RequestID != made.RequestID ||
			len(e.Delegation) != 2 || e.Delegation[0].ActorID != "carla" || e.Delegation[1].ActorID != "orchestrator" || !slices.Contains(e.Refs, "hypothesis:h") || e.LastSeq != made.Seq {
			t.Errorf("%s: %+v", name, e)
		}
	}
	check("by what changed", journal(hub.JournalFilter{Ref: "hypothesis:h"}))
	check("by a version of it", journal(hub.JournalFilter{Ref: made.Ref.String()}))
	check("by who wrote", journal(hub.JournalFilter{Actor: "agent-7"}))
	check("by the one on whose behalf", journal(hub.JournalFilter{Actor: "carla"}))
	if n := len(journal(hub.JournalFilter{Ref: "hypothesis:i", Actor: "ada", Since: time.Now().Add(-time.Hour)})); n != 2 {
		t.Errorf("%d commits changed hypothesis:i, want 2", n)
	}
	if n := len(journal(hub.JournalFilter{Since: time.Now().Add(time.Hour)})); n != 0 {
		t.Errorf("%d commits are of the future", n)
	}
	if all := journal(hub.JournalFilter{Limit: 2}); len(all) != 2 || all[0].LastSeq < all[1].LastSeq {
		t.Errorf("the latest two are %+v", all)
	}
	if _, err := hub.Journal(t.Context(), f.db, hub.JournalFilter{Ref: "none"}); err == nil {
		t.Error("a ref that is none is taken")
	}
	// What the log says is trimmed in the end.
	if _, err := f.db.Exec(t.Context(), `TRUNCATE event, feed.change`); err != nil {
		t.Fatal(err)
	}
	check("after the log was trimmed", journal(hub.JournalFilter{Ref: "hypothesis:h"}))
}
