package hub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// seen makes agents known in commons and returns who calls as each.
func (f *fixture) seen(t *testing.T, agents ...string) map[string]context.Context {
	t.Helper()
	as := make(map[string]context.Context)
	for _, agent := range agents {
		callOK(t, verb.Create, f.member(t.Context(), agent, verb.Contributor), f.verbs, hypothesis("by-"+agent, "x"))
		as[agent] = f.member(t.Context(), agent, verb.Viewer, verb.Contributor) //nolint:fatcontext // one for each
	}
	return as
}

func (f *fixture) mustSend(t *testing.T, ctx context.Context, in verb.MessagesSendRequest) verb.MessageResult {
	t.Helper()
	return callOK(t, verb.MessagesSend, ctx, f.verbs, in)
}

// inbox returns the bodies of a list, newest first.
func (f *fixture) inbox(t *testing.T, ctx context.Context, in verb.MessagesListRequest) (bodies []string) {
	t.Helper()
	for {
		page := callOK(t, verb.MessagesList, ctx, f.verbs, in)
		for _, m := range page.Messages {
			bodies = append(bodies, m.Body)
		}
		if in.Cursor = page.NextCursor; in.Cursor == "" {
			return bodies
		}
	}
}

func TestMailbox(t *testing.T) {
	f := newHub(t)
	as := f.seen(t, "ada", "bob", "eve")
	for i, handle := range []string{"robert", "bobby"} {
		callOK(t, verb.AgentsUpdate, as["bob"], f.verbs, verb.AgentsUpdateRequest{Handle: &handle, Roles: []string{"curator"}})
		f.mustSend(t, as["ada"], verb.MessagesSendRequest{Recipient: "@robert", Body: fmt.Sprint("by handle ", i)})
	}
	first := f.mustSend(t, as["ada"], verb.MessagesSendRequest{Recipient: "agent:bob", Body: "Do this\nand that", Priority: "high"})
	if want := first.Ref.Current().String(); first.Thread != want || first.Recipients != 1 || first.Seq == 0 {
		t.Errorf("send = %+v, want the thread %s", first, want)
	}
	reply := f.mustSend(t, as["bob"], verb.MessagesSendRequest{Recipient: "agent:ada", Body: "Which?", Subject: "Re", InReplyTo: first.Ref.String()})
	again := f.mustSend(t, as["ada"], verb.MessagesSendRequest{Recipient: "@curator", Body: "All", InReplyTo: reply.Ref.String()})
	if reply.Thread != first.Thread || again.Thread != first.Thread {
		t.Errorf("replies are in %s and %s, want %s", reply.Thread, again.Thread, first.Thread)
	}
	all := []string{"All", "Do this\nand that", "by handle 1", "by handle 0"}
	for _, limit := range []int{1, 3, 0} {
		if diff := cmp.Diff(all, f.inbox(t, as["bob"], verb.MessagesListRequest{Limit: limit})); diff != "" {
			t.Errorf("bob's inbox by %d (-want +got):\n%s", limit, diff)
		}
	}
	thread := verb.MessagesListRequest{Thread: first.Thread}
	for _, who := range []string{"ada", "bob"} {
		got := f.inbox(t, as[who], thread) // in the order of the callers' clocks, which stand still
		slices.Sort(got)
		if diff := cmp.Diff([]string{"All", "Do this\nand that", "Which?"}, got); diff != "" {
			t.Errorf("the thread for %s (-want +got):\n%s", who, diff)
		}
	}
	if got := f.inbox(t, as["bob"], verb.MessagesListRequest{Priority: "high"}); len(got) != 1 {
		t.Errorf("of high priority: %q", got)
	}
	t.Run("counts what is open", func(t *testing.T) {
		box := callOK(t, verb.Mailbox, as["bob"], f.verbs, verb.MailboxRequest{Limit: 2})
		if box.Pending != 4 || box.Read != 0 || box.High != 1 || len(box.Threads) != 2 || !box.More {
			t.Fatalf("mailbox = %+v", box)
		}
		if top := box.Threads[0]; top.Thread != first.Thread || top.Pending != 2 || top.Latest.Body != "All" {
			t.Errorf("the latest thread = %+v", top)
		}
	})
	t.Run("acknowledges forward alone", func(t *testing.T) {
		ack := func(status, response string) (verb.AckResult, error) {
			return verb.MessagesAck.Call(as["bob"], f.verbs, verb.MessagesAckRequest{Ref: first.Ref.String(), Status: status, Response: response})
		}
		for _, step := range []struct{ status, response, want, outcome string }{
			{"pending", "", "validation_failed", ""},
			{"read", "", "", "none"},
			{"read", "", "", "deduplicated"},
			{"", "Done", "", "none"}, // completed
			{"completed", "Done", "", "deduplicated"},
			{"completed", "Not so", "lifecycle_violation", ""},
			{"read", "", "lifecycle_violation", ""},
			{"rejected", "", "lifecycle_violation", ""},
		} {
			got, err := ack(step.status, step.response)
			if code(err) != step.want || err == nil && got.Idempotency != step.outcome {
				t.Errorf("ack %q with %q = %+v, %v, want %q %s", step.status, step.response, got, err, step.want, step.outcome)
			}
		}
		sent := callOK(t, verb.MessagesList, as["ada"], f.verbs, verb.MessagesListRequest{Box: "sent"}).Messages
		i := slices.IndexFunc(sent, func(m verb.Message) bool { return m.Ref == first.Ref })
		if i < 0 || len(sent[i].Sent.Deliveries) != 1 || sent[i].Sent.Deliveries[0].Response != "Done" || sent[i].Sent.Counts["completed"] != 1 || sent[i].AckStatus != "" {
			t.Errorf("what ada sent = %+v", sent)
		}
		if got := f.inbox(t, as["bob"], verb.MessagesListRequest{}); slices.Contains(got, "Do this\nand that") {
			t.Errorf("what is done is pending: %q", got)
		}
	})
	t.Run("archives what was done long ago", func(t *testing.T) {
		any := verb.MessagesListRequest{AckStatus: "any"}
		if got := f.inbox(t, as["bob"], any); len(got) != 4 {
			t.Errorf("any = %q", got)
		}
		if _, err := f.db.Exec(t.Context(), `UPDATE delivery SET ack_at = ack_at - interval '91 days' WHERE status = 'completed'`); err != nil {
			t.Fatal(err)
		}
		if got := f.inbox(t, as["bob"], any); len(got) != 3 {
			t.Errorf("after 91 days = %q", got)
		}
		any.IncludeArchived = true
		if got := f.inbox(t, as["bob"], any); len(got) != 4 {
			t.Errorf("with the archive = %q", got)
		}
	})
	t.Run("only its recipient acknowledges", func(t *testing.T) {
		for who, want := range map[string]string{"ada": "permission_denied", "eve": "not_found"} {
			if _, err := verb.MessagesAck.Call(as[who], f.verbs, verb.MessagesAckRequest{Ref: reply.Ref.String()}); who == "eve" && code(err) != want {
				t.Errorf("ack by %s = %v", who, err)
			}
			if _, err := verb.MessagesAck.Call(as[who], f.verbs, verb.MessagesAckRequest{Ref: again.Ref.String()}); code(err) != want {
				t.Errorf("ack by %s = %v, want %s", who, err, want)
			}
		}
	})
	t.Run("refuses", func(t *testing.T) {
		for name, test := range map[string]struct {
			in   verb.MessagesSendRequest
			path string
		}{
			"nobody":           {verb.MessagesSendRequest{Recipient: "agent:nobody", Body: "x"}, "/recipient"},
			"a group of none":  {verb.MessagesSendRequest{Recipient: "group:none", Body: "x"}, "/recipient"},
			"no body":          {verb.MessagesSendRequest{Recipient: "agent:bob"}, "/body"},
			"no priority":      {verb.MessagesSendRequest{Recipient: "agent:bob", Body: "x", Priority: "hi"}, "/priority"},
			"another's thread": {verb.MessagesSendRequest{Recipient: "agent:bob", Body: "x", InReplyTo: reply.Ref.String()}, "/in_reply_to"},
			"no thread":        {verb.MessagesSendRequest{Recipient: "agent:bob", Body: "x", InReplyTo: "message:m-none"}, "/in_reply_to"},
			"no message":       {verb.MessagesSendRequest{Recipient: "agent:bob", Body: "x", InReplyTo: "paper:p"}, "/in_reply_to"},
			"no scope":         {verb.MessagesSendRequest{Recipient: "agent:bob", Body: "x", Scope: "lab-none"}, "/scope"},
			"a long subject":   {verb.MessagesSendRequest{Recipient: "agent:bob", Body: "x", Subject: strings.Repeat("s", 513)}, "/subject"},
		} {
			_, err := verb.MessagesSend.Call(as["eve"], f.verbs, test.in)
			var e *artifact.Error
			if !errors.As(err, &e) || code(err) != "validation_failed" || !slices.ContainsFunc(e.Problems, func(p artifact.Problem) bool { return p.Path == test.path }) {
				t.Errorf("%s = %v, want a problem at %s", name, err, test.path)
			}
		}
	})
	t.Run("an answer reaches who was never seen", func(t *testing.T) {
		zoe := f.member(t.Context(), "zoe", verb.Viewer, verb.Contributor)
		asked := f.mustSend(t, zoe, verb.MessagesSendRequest{Recipient: "agent:bob", Body: "Hello"})
		in := verb.MessagesSendRequest{Recipient: "agent:zoe", Body: "Hello, zoe"}
		if _, err := verb.MessagesSend.Call(as["bob"], f.verbs, in); code(err) != "validation_failed" {
			t.Errorf("out of the blue = %v", err)
		}
		in.InReplyTo = asked.Ref.String()
		f.mustSend(t, as["bob"], in)
		if got := f.inbox(t, zoe, verb.MessagesListRequest{}); len(got) != 1 {
			t.Errorf("zoe has %q", got)
		}
	})
	t.Run("an idempotency key sends once", func(t *testing.T) {
		in := verb.MessagesSendRequest{Recipient: "agent:eve", Body: "once", WriteOptions: verb.WriteOptions{IdempotencyKey: uuid.NewString()}}
		one, two := f.mustSend(t, as["ada"], in), f.mustSend(t, as["ada"], in)
		if one.Ref != two.Ref || two.Idempotency != verb.IdempotencyReplayed || len(f.inbox(t, as["eve"], verb.MessagesListRequest{})) != 1 {
			t.Errorf("sent %v and %v (%s)", one.Ref, two.Ref, two.Idempotency)
		}
	})
	f.checkDigest(t)
}

// TestMailGroups checks that who was in a group when a message was sent has it,
// whoever is in it when it is read.
func TestMailGroups(t *testing.T) {
	f := newHub(t)
	as := f.seen(t, "ada", "bob", "eve")
	group := callOK(t, verb.Create, as["ada"], f.verbs, verb.CreateRequest{Type: "group", ID: "g", Title: "G", Content: content(map[string]any{"members": []string{"ada", "bob"}})})
	out := f.mustSend(t, as["ada"], verb.MessagesSendRequest{Recipient: "group:g", Body: "to those of then"})
	callOK(t, verb.Update, as["ada"], f.verbs, verb.UpdateRequest{Ref: "group:g", BaseContentHash: group.ContentHash, Content: content(map[string]any{"members": []string{"ada", "eve"}})})
	f.mustSend(t, as["ada"], verb.MessagesSendRequest{Recipient: "group:g", Body: "to those of now"})
	for who, want := range map[string][]string{"ada": nil, "bob": {"to those of then"}, "eve": {"to those of now"}} {
		if diff := cmp.Diff(want, f.inbox(t, as[who], verb.MessagesListRequest{})); diff != "" {
			t.Errorf("%s has (-want +got):\n%s", who, diff)
		}
	}
	if _, err := verb.Get.Call(as["eve"], f.verbs, verb.GetRequest{Ref: out.Ref}); code(err) != "not_found" {
		t.Errorf("who came later reads it: %v", err)
	}
	callOK(t, verb.MessagesAck, as["bob"], f.verbs, verb.MessagesAckRequest{Ref: out.Ref.String()})

	t.Run("in a private scope", func(t *testing.T) {
		callOK(t, verb.ScopesCreate, f.admin(t.Context()), f.verbs, verb.ScopesCreateRequest{ID: "lab-a", Title: "A"})
		f.grant(t, "lab-a", "ada", verb.Contributor)
		f.grant(t, "lab-a", "bob", verb.Contributor)
		in := verb.MessagesSendRequest{Recipient: "agent:eve", Body: "of the lab", Scope: "lab-a"}
		if _, err := verb.MessagesSend.Call(as["ada"], f.verbs, in); code(err) != "validation_failed" {
			t.Errorf("to one who may not see the lab = %v", err)
		}
		in.Recipient = "agent:bob"
		sent := f.mustSend(t, as["ada"], in)
		reply := f.mustSend(t, as["bob"], verb.MessagesSendRequest{Recipient: "agent:ada", Body: "so it is", InReplyTo: sent.Ref.String()})
		if !strings.HasPrefix(reply.Ref.ID, "lab-a/m-") || reply.Thread != sent.Ref.Current().String() {
			t.Errorf("the reply is %+v, want it in the lab", reply)
		}
	})
}

// TestMailBroadcast checks that a message to everyone makes a delivery for nobody
// who does nothing with it.
func TestMailBroadcast(t *testing.T) {
	f := newHub(t)
	as := f.seen(t, "ada", "bob", "eve")
	const many = `WITH a AS (INSERT INTO agent (id, kind, may_delegate, created_at, updated_at)
		SELECT 'many-' || n, 'ai_local', false, now(), now() FROM generate_series(1, 10000) n RETURNING id)
		INSERT INTO agent_seen (scope, agent) SELECT 'commons', id FROM a`
	if _, err := f.db.Exec(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	out := f.mustSend(t, as["ada"], verb.MessagesSendRequest{Recipient: "agents:*", Body: "to all"})
	rows := func() int {
		return f.count(t, "SELECT (SELECT count(*) FROM delivery) + (SELECT count(*) FROM participant)")
	}
	if n := rows(); n != 2 || !out.Everyone { // its author, and all
		t.Errorf("a broadcast makes %d rows, %+v", n, out)
	}
	if got := f.inbox(t, as["ada"], verb.MessagesListRequest{}); got != nil {
		t.Errorf("its sender has %q", got)
	}
	for _, who := range []string{"bob", "eve"} {
		if got := f.inbox(t, as[who], verb.MessagesListRequest{}); len(got) != 1 {
			t.Errorf("%s has %q", who, got)
		}
	}
	t.Run("races of acks have one winner", func(t *testing.T) {
		var wg sync.WaitGroup
		errs := make([]error, 12)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = verb.MessagesAck.Call(as["bob"], f.verbs, verb.MessagesAckRequest{
					Ref: out.Ref.String(), Status: []string{"completed", "rejected"}[i%2], Response: strconv.Itoa(i),
				})
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			switch code(err) {
			case "":
				won++
			case "lifecycle_violation":
			default:
				t.Errorf("ack = %v", err)
			}
		}
		if n := rows(); won != 1 || n != 3 {
			t.Errorf("%d won, %d rows", won, n)
		}
	})
	if got := f.inbox(t, as["bob"], verb.MessagesListRequest{}); got != nil {
		t.Errorf("bob still has %q", got)
	}
	if box := callOK(t, verb.Mailbox, as["eve"], f.verbs, verb.MailboxRequest{}); box.Pending != 1 || len(box.Threads) != 1 {
		t.Errorf("eve's mailbox = %+v", box)
	}
}
