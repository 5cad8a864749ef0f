package rights_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestSupersededAcrossScopes moves what was replaced, and what replaced it.
func TestSupersededAcrossScopes(t *testing.T) {
	l := newLab(t)
	o := &outsider{lab: l, met: map[string]bool{}}
	out := l.callers[0]
	create := func(id string) string {
		return must(t, l.root, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: id, Title: "Open", Content: object(contents("hypothesis", "what is open"))}).Ref.Current().String()
	}
	move := func(ref, scope string) {
		a := must(t, l.root, verb.Get, verb.GetRequest{Ref: mustRef(t, ref)}).Artifact
		must(t, l.root, verb.Move, verb.MoveRequest{Ref: ref, Scope: scope, BaseContentHash: a.ContentHash, Reason: "to try it"})
	}
	supersede := func(ref, by string) {
		must(t, l.root, verb.Supersede, verb.SupersedeRequest{Ref: ref, ReplacementRef: by, Reason: "to try it"})
	}
	t.Run("a private replacement is not named once what it replaced is public", func(t *testing.T) {
		ref := create("left-h")
		move(ref, labA)
		supersede(ref, l.private.refs[0].real)
		move(ref, artifact.Commons)
		l.settle(t)
		for _, door := range out.doors {
			for name, r := range map[string]request{"get": {"ref": ref}, "supersede": {"ref": ref, "reason": "x", "dry_run": true}} {
				if a := l.ask(t, door, out.token, name, r); o.tells(a.body) != "" {
					t.Errorf("%s at the %s tells of %s: %s", name, door, o.tells(a.body), a.body)
				}
			}
		}
	})
	t.Run("what replaced a private artifact is not told", func(t *testing.T) {
		var got [2]answer
		for i, n := range []string{"1", "2"} {
			a, b, c := create("a"+n), create("b"+n), create("c"+n)
			supersede(a, b)
			move(b, labA)
			if i == 0 {
				supersede(b, c)
			}
			got[i] = l.ask(t, atHub, out.token, "supersede", request{"ref": c, "replacement_ref": a, "reason": "x", "dry_run": true})
		}
		if got[0].status != got[1].status {
			t.Errorf("the answers differ: %s", cmp.Diff(got[0].body, got[1].body))
		}
	})
}
