package node_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

// TestMailThroughNode: a node passes mail on and keeps nothing of it, not even of what
// was read and acknowledged there.
func TestMailThroughNode(t *testing.T) {
	l := newLabs(t)
	ada, bob := l.at(t, l.a, "ada"), l.at(t, l.a, "bob")
	const subject, body, answer = "mail-subject-3141", "mail-body-2718", "mail-answer-1618"
	for _, as := range []string{"ada", "bob"} { // who wrote in commons is known there
		must(t, verb.Create, l.as(t, as), verb.CreateRequest{Type: "hypothesis", Title: "by " + as, Content: []byte(`{"statement":"x"}`)})
	}
	sent := must(t, verb.MessagesSend, ada, verb.MessagesSendRequest{Recipient: "agent:bob", Subject: subject, Body: body})
	page := must(t, verb.MessagesList, bob, verb.MessagesListRequest{})
	if len(page.Messages) != 1 || page.Messages[0].Body != body || page.Messages[0].From != "ada" {
		t.Errorf("messages = %+v", page.Messages)
	}
	must(t, verb.MessagesAck, bob, verb.MessagesAckRequest{Ref: sent.Ref.String(), Response: answer})
	if box := must(t, verb.Mailbox, bob, verb.MailboxRequest{}); box.Pending != 0 || box.Read != 0 {
		t.Errorf("mailbox = %+v", box)
	}
	back := must(t, verb.MessagesList, ada, verb.MessagesListRequest{Box: verb.BoxSent})
	if len(back.Messages) != 1 || back.Messages[0].Sent == nil || len(back.Messages[0].Sent.Deliveries) != 1 || back.Messages[0].Sent.Deliveries[0].Response != answer {
		t.Errorf("sent = %+v", back.Messages)
	}
	l.caughtUp(t)
	l.verify(t, l.a, l.b)
	for _, at := range []*lab{l.a, l.b} {
		holdNowhere(t, at.dir, subject, body, answer)
	}
}

// holdNowhere looks for texts in all files of a directory.
func holdNowhere(t *testing.T, dir string, texts ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		raw, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(raw, []byte(text)) {
				t.Errorf("%s holds %s", path, text)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were read: %v", files, err)
	}
}
