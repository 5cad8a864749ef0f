package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// verbFlags are those of a command that is one verb.
type verbFlags struct {
	remoteFlags
	asJSON bool
}

func (f *verbFlags) add(cmd *cobra.Command) {
	f.remoteFlags.add(cmd)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the verb's answer, or its error, as JSON")
}

// runVerb calls a verb and prints its answer: as it came with --json, else as show
// writes it, in columns that tabs part.
func runVerb[In, Out any](cmd *cobra.Command, f *verbFlags, v verb.Verb[In, Out], in In, show func(w io.Writer, out Out)) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := client.Invoke(cmd.Context(), v.Name, in, &raw); err != nil {
		return f.failed(cmd, err)
	}
	if f.asJSON {
		return say(cmd.OutOrStdout(), strings.TrimSpace(string(raw)))
	}
	var out Out
	if err := json.Unmarshal(raw, &out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", v.Name, err)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	show(t, out)
	return t.Flush()
}

func (f *verbFlags) failed(cmd *cobra.Command, err error) error {
	e := artifact.AsError(err)
	switch {
	case f.asJSON:
		if err := writeJSON(cmd.OutOrStdout(), e); err != nil {
			return err
		}
		return &exitError{code: 1}
	case e.Reason == artifact.ReasonHubUnreachable:
		return fmt.Errorf("%s does not answer: is it running? another is given with --hub", f.url)
	case e.Code == artifact.CodeNotFound && e.Details["ref"] != nil:
		return fmt.Errorf("%v: there is none that you may know of", e.Details["ref"])
	}
	return errors.New(printable(e.Error()))
}

// moreLine says how to get the next page; it is no part of the table.
func moreLine(cmd *cobra.Command, cursor string) {
	if cursor != "" {
		cmd.PrintErrf("There are more: --cursor %s\n", cursor)
	}
}

// cells writes a line of a table.
func cells(w io.Writer, texts ...string) {
	for i, text := range texts {
		texts[i] = orDash(printable(text))
	}
	_, _ = fmt.Fprintln(w, strings.Join(texts, "\t")) // the flush reports it
}

// printable takes out of a text, which anybody may have written, what a terminal
// would act on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func dateOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}
