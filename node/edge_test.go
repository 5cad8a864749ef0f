package node_test

import (
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestRemarksReplicate: nodes hold comments on links and signals as the hub does,
// whatever becomes of those.
func TestRemarksReplicate(t *testing.T) {
	l := newLabs(t)
	ada, root := l.as(t, "ada"), l.as(t, "root")
	a := must(t, verb.Create, ada, statement("commons", "a", "x"))
	must(t, verb.Create, ada, statement("commons", "b", "x"))
	link := must(t, verb.Link, ada, verb.LinkRequest{From: "hypothesis:a", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:b"}}).Ref
	vote := must(t, verb.Signal, ada, verb.SignalRequest{Ref: "hypothesis:a", Kind: "vote", Value: "1"}).Ref
	comments := map[string]artifact.Ref{}
	for _, on := range []string{link, vote} {
		comments[on] = must(t, verb.Comment, ada, verb.CommentRequest{Ref: on, Body: "the remark on " + on}).Ref.Current()
	}
	check := func(when string, hidden bool) {
		t.Helper()
		l.caughtUp(t)
		l.verify(t, l.a, l.b)
		l.verifyHub(t)
		for on, ref := range comments {
			if _, err := verb.Get.Call(t.Context(), l.at(t, l.a, "ada"), verb.GetRequest{Ref: ref}); err != nil {
				t.Errorf("%s: the comment on %s at its lab's node: %v", when, on, err)
			}
			_, err := verb.Get.Call(t.Context(), l.at(t, l.b, "bob"), verb.GetRequest{Ref: ref})
			if got := artifact.IsCode(err, artifact.CodeNotFound); got != hidden {
				t.Errorf("%s: the comment on %s at another's node: %v", when, on, err)
			}
			if hidden { // a reader may keep the WAL from being cut for a moment
				eventually(t, 10*time.Second, when+": lab-b's files do not hold the remark on "+on, func() bool { return !l.b.holds(t, "the remark on "+on) })
			}
		}
	}
	check("in commons", false)
	move := func(to string) {
		t.Helper()
		must(t, verb.Move, root, verb.MoveRequest{Ref: "hypothesis:a", Scope: to, BaseContentHash: a.ContentHash, Reason: "r"})
	}
	move("lab-a")
	check("moved to a lab", true)
	move(artifact.Commons)
	check("moved back", false)
	must(t, verb.Supersede, ada, verb.SupersedeRequest{Ref: "hypothesis:b", Reason: "r"})
	check("with one end superseded", false)
	must(t, verb.Redact, root, verb.RedactRequest{Ref: "hypothesis:b", Reason: "r", Revisions: 1})
	check("with it redacted", false)
	must(t, verb.Unlink, ada, verb.UnlinkRequest{Ref: link, Reason: "wrong"})
	check("with the link taken back", false)
	must(t, verb.Redact, root, verb.RedactRequest{Ref: comments[link].String(), Reason: "r", Revisions: 1})
	check("with a remark redacted", false)
	for _, n := range []*lab{l.a, l.b} {
		eventually(t, 10*time.Second, "no node holds what was redacted", func() bool { return !n.holds(t, "the remark on "+link) })
	}
}
