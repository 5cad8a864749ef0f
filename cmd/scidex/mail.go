package main

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func newMailCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Send messages to agents, and say what became of those to you",
		Long: `A message is for its sender and its recipients alone: not even an admin reads it. What
you say became of it, its sender sees.`,
		Example: `  scidex mail send @bob "Please look at hypothesis:h-1"
  scidex mail list
  scidex mail read message:m-1
  scidex mail ack message:m-1 --response "It holds"`,
	}
	cmd.AddCommand(newMailSendCmd(), newMailListCmd(), newMailReadCmd(), newMailAckCmd())
	return cmd
}

func newMailSendCmd() *cobra.Command {
	var f verbFlags
	var in verb.MessagesSendRequest
	cmd := &cobra.Command{
		Use:   "send RECIPIENT BODY",
		Short: "Send a message",
		Long: `A recipient is agent:ID, @HANDLE, agents:role:ROLE, @ROLE, group:ID or agents:* for
everyone. An answer joins the thread of what it answers, and stands in its scope.`,
		Example: `  scidex mail send @bob "Please look at hypothesis:h-1" --priority high
  scidex mail send agent:ada "Which one?" --in-reply-to message:m-1`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Recipient, in.Body = args[0], args[1]
			return runVerb(cmd, &f, verb.MessagesSend, in, func(w io.Writer, out verb.MessageResult) {
				to := strconv.Itoa(out.Recipients)
				if out.Everyone {
					to = "everyone in the scope"
				}
				cells(w, "sent", out.Ref.Current().String())
				cells(w, "thread", out.Thread)
				cells(w, "recipients", to)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.Subject, "subject", "", "one line; without, the first of the body")
	cmd.Flags().StringVar(&in.Priority, "priority", "", strings.Join(verb.Priorities, ", "))
	cmd.Flags().StringVar(&in.InReplyTo, "in-reply-to", "", "ref of the message that this one answers")
	cmd.Flags().StringVar(&in.Scope, "scope", "", "where it stands; without, where what it answers does, or commons")
	cmd.Flags().StringVar(&in.IdempotencyKey, "idempotency-key", "", "a UUID that makes a retry send nothing twice")
	return cmd
}

func newMailListCmd() *cobra.Command {
	var f verbFlags
	var in verb.MessagesListRequest
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages to you, by you, or of a thread, newest first",
		Long:  `Without flags these are the messages to you that you did nothing with.`,
		Example: `  scidex mail list
  scidex mail list --box sent
  scidex mail list --thread message:m-1
  scidex mail list --status any --archived`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runVerb(cmd, &f, verb.MessagesList, in, func(w io.Writer, out verb.MessagesListResponse) {
				cells(w, "MESSAGE", "FROM", "TO", "STATUS", "PRIORITY", "SENT", "SUBJECT")
				for i := range out.Messages {
					m := &out.Messages[i]
					cells(w, m.Ref.Current().String(), m.From, m.Recipient, m.AckStatus, m.Priority, dateOf(m.SentAt), subjectOf(m))
				}
				moreLine(cmd, out.NextCursor)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.Box, "box", "", "inbox or sent")
	cmd.Flags().StringVar(&in.Thread, "thread", "", "ref of the first message of a thread")
	cmd.Flags().StringVar(&in.AckStatus, "status", "", "of the inbox: pending, read, completed, rejected or any; without, pending")
	cmd.Flags().StringVar(&in.Priority, "priority", "", "only of this priority: "+strings.Join(verb.Priorities, ", "))
	cmd.Flags().BoolVar(&in.IncludeArchived, "archived", false, "also what you completed more than 90 days ago")
	addPage(cmd, &in.Limit, &in.Cursor)
	return cmd
}

func subjectOf(m *verb.Message) string {
	if m.Subject != "" {
		return m.Subject
	}
	first, _, _ := strings.Cut(m.Body, "\n")
	return first
}

func newMailReadCmd() *cobra.Command {
	var f verbFlags
	cmd := &cobra.Command{
		Use:     "read MESSAGE",
		Short:   "Show a message",
		Long:    `That you have read it, its sender learns by scidex mail ack --status read.`,
		Example: `  scidex mail read message:m-1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, fault := verb.ParseMessageRef(args[0], "/ref")
			if fault != nil {
				return f.failed(cmd, artifact.Invalid(*fault))
			}
			return runVerb(cmd, &f, verb.Get, verb.GetRequest{Ref: ref}, func(w io.Writer, out verb.GetResponse) {
				a := &out.Artifact
				cells(w, "from", a.CreatedBy)
				cells(w, "sent", dateOf(a.CreatedAt))
				cells(w, "subject", a.Title)
				showBody(w, a.Content)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newMailAckCmd() *cobra.Command {
	var f verbFlags
	var in verb.MessagesAckRequest
	cmd := &cobra.Command{
		Use:   "ack MESSAGE",
		Short: "Say what became of a message to you",
		Long:  `A message goes from pending to read, and from either to completed or rejected.`,
		Example: `  scidex mail ack message:m-1
  scidex mail ack message:m-1 --status rejected --response "Not mine"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Ref = args[0]
			return runVerb(cmd, &f, verb.MessagesAck, in, func(w io.Writer, out verb.AckResult) {
				cells(w, out.Ref, out.AckStatus, dateOf(out.AckAt))
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&in.Status, "status", "", strings.Join(verb.Acks, ", ")+"; without, completed")
	cmd.Flags().StringVar(&in.Response, "response", "", "an answer that its sender reads")
	return cmd
}

// showBody writes the text of a message, line by line.
func showBody(w io.Writer, content json.RawMessage) {
	var m struct{ Recipient, Body string }
	if err := json.Unmarshal(content, &m); err != nil { // of a redacted one there is none
		return
	}
	cells(w, "to", m.Recipient)
	for i, line := range strings.Split(m.Body, "\n") {
		name := ""
		if i == 0 {
			name = "body"
		}
		_, _ = io.WriteString(w, name+"\t"+printable(line)+"\n") // the flush reports it
	}
}
