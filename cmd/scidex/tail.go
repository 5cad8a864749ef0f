package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

func newTailCmd() *cobra.Command {
	var r remoteFlags
	var rule string
	var since int64
	var limit int
	var asJSON bool
	var consumer string
	cmd := &cobra.Command{
		Use:   "tail [TYPE...]",
		Short: "Show events as they happen",
		Long: `Shows what happens at a hub or a node, as far as the token may see it, from now on
or after an event. It goes on where it was when the connection breaks or the server
restarts, and leaves no event out.

A TYPE is such as hypothesis.created, or hypothesis.* for all that happens to
hypotheses; without any, all is shown. --filter is JSONLogic over the event.

--consumer names a place that the hub keeps for you: what was shown is not shown again,
on whatever machine you go on. The types and the filter are kept with it. With --since it
begins there instead, again too: give that the first time alone. What is private to you and
others, such as messages, a node shows with --consumer, or when its types are named.`,
		Example: `  scidex tail
  scidex tail 'hypothesis.*' comment.created
  scidex tail --filter '{">":[{"var":"payload.value"},0]}' '*'
  scidex tail --consumer nightly --since 0 'hypothesis.*'    # once; from then on:
  scidex tail --consumer nightly
  scidex tail --since 0 --limit 10 --json | jq .ref.id`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := r.client(); err != nil {
				return err
			}
			in := verb.SubscribeRequest{Types: args}
			if rule != "" {
				if !json.Valid([]byte(rule)) {
					return &exitError{2, errors.New("--filter: give JSONLogic as JSON, in quotes")}
				}
				in.Filter = json.RawMessage(rule)
			}
			if cmd.Flags().Changed("since") {
				at := artifact.Seq(since)
				in.Since = &at
			}
			client := &event.Client{URL: r.url, Token: r.token, Broken: func(err error) {
				cmd.PrintErrln("The stream broke off and is taken up again:", printable(err.Error()))
			}}
			shown := 0
			follow := client.Follow
			if consumer != "" {
				in.ConsumerID, follow = consumer, client.Consume
			}
			err := follow(cmd.Context(), in, func(e verb.Event) error {
				if err := showEvent(cmd.OutOrStdout(), &e, asJSON); err != nil {
					return err
				}
				if shown++; shown == limit {
					return event.ErrLast
				}
				return nil
			})
			switch {
			case errors.Is(err, event.ErrLast), errors.Is(err, context.Canceled):
				return nil
			case artifact.AsError(err).Code == artifact.CodeValidationFailed:
				for _, p := range artifact.AsError(err).Problems {
					cmd.PrintErrf("%s: %s\n", printable(p.Path), printable(p.Message))
				}
				return &exitError{code: 2}
			}
			return errors.New(printable(err.Error()))
		},
	}
	r.add(cmd)
	cmd.Flags().StringVar(&rule, "filter", "", "JSONLogic over the event")
	cmd.Flags().StringVar(&consumer, "consumer", "", "name of a durable consumer, which is made if it is new, and goes on where it was")
	cmd.Flags().Int64Var(&since, "since", 0, "event_id after which to begin; 0 for all that are kept (default: from now on)")
	cmd.Flags().IntVar(&limit, "limit", 0, "end after so many events")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each event as one line of JSON")
	return cmd
}

func showEvent(w io.Writer, e *verb.Event, asJSON bool) error {
	if asJSON {
		return writeJSON(w, e)
	}
	ref := e.Ref.Type + ":" + e.Ref.ID
	if e.Ref.Type == "" {
		ref = "-"
	}
	_, err := fmt.Fprintf(w, "%s  %-24s %s  by %s  %s\n",
		e.OccurredAt.Local().Format(time.DateTime), printable(e.Type), printable(ref), printable(e.Actor.ID), printable(string(e.Payload)))
	return err
}
