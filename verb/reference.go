package verb

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/google/jsonschema-go/jsonschema"
)

// Reference returns the page docs/VERBS.md: every bound verb with the fields of
// its request and of its answer, the errors that it may answer with, and examples.
func (r *Registry) Reference(examples []Example) []byte {
	var b bytes.Buffer
	b.WriteString(`# Verbs

Generated from the program by ` + "`make generate`" + `; do not edit.

Each verb is ` + "`POST " + PathPrefix + "<verb>`" + ` with a JSON object and a bearer token, on the hub; a
node answers reads from its replica and forwards writes. Unknown fields are refused.
In Go, ` + "`verb.Client`" + ` calls them with types; in a shell, ` + "`scidex call`" + `. Who may call them
is in [PERMISSIONS.md](PERMISSIONS.md).

The examples are one story, run on a hub when this page is made: a lab's agents weigh a
claim about Alzheimer's disease. Ids, times and places in the log are made the same each
time; all else is as it was answered.

`)
	for _, v := range r.order {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", v.name, anchor(v.name), v.summary)
	}
	writeErrors(&b)
	for _, v := range r.order {
		fmt.Fprintf(&b, "\n## %s\n\n%s (%s)\n", v.name, v.summary, v.effect)
		writeFields(&b, "Request", v.in)
		writeFields(&b, "Answer", v.out)
		fmt.Fprintf(&b, "\nErrors, beside [those of any verb](#errors): %s.\n", cmp.Or(reasonList(r.Errors(v.name)), "none"))
		for _, e := range ExamplesOf(examples, v.name) {
			fmt.Fprintf(&b, "\n**%s**\n\n```json\n%s\n```\n", e.Title, Layout(e.Request))
			if e.Status != http.StatusOK {
				fmt.Fprintf(&b, "\nrefused with %d:\n", e.Status)
			}
			fmt.Fprintf(&b, "\n```json\n%s\n```\n", Layout(e.Response))
		}
	}
	return b.Bytes()
}

// Usage returns what a verb does, the fields of its request, its errors and an
// example, for a terminal. ok is false for a verb that is not bound.
func (r *Registry) Usage(name string, examples []Example) (text string, ok bool) {
	v, ok := r.byName[name]
	if !ok {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s (%s)\n\nRequest:\n", v.name, v.summary, v.effect)
	if len(v.in.Properties) == 0 {
		b.WriteString("  no fields\n")
	}
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, name := range v.in.PropertyOrder {
		p := v.in.Properties[name]
		mark := ""
		if slices.Contains(v.in.Required, name) {
			mark = ", required"
		}
		_, _ = fmt.Fprintf(t, "  %s\t%s%s\t%s\n", name, typeName(p), mark, p.Description) // to memory
	}
	_ = t.Flush()
	b.WriteString("\nErrors of its own:\n")
	for _, f := range r.Errors(name) {
		fmt.Fprintf(&b, "  %s (%d)\n    %s\n    → %s\n", f.Reason, f.Status, f.Means, f.Next)
	}
	for _, e := range ExamplesOf(examples, name) {
		if e.Status == http.StatusOK {
			fmt.Fprintf(&b, "\nExample, %s:\n%s\n", e.Title, Layout(e.Request))
			break
		}
	}
	return b.String(), true
}

// anchor is what a heading is called in links.
func anchor(heading string) string { return strings.ReplaceAll(heading, "/", "") }

// writeErrors writes the table of all failures.
func writeErrors(b *bytes.Buffer) {
	fmt.Fprintf(b, `
## Errors

Every error has the body that [PROTOCOL.md](PROTOCOL.md#errors) describes. Its code is `+"`error`"+`; what
is finer is `+"`details.reason`"+`, which belongs to one code alone. Codes and reasons stay what they
are; new reasons may come, so take one that you do not know by its code. What is retryable
may be sent again as it is, with its idempotency key.

Any verb may answer with %s; at a node also with %s. Each verb lists what else it may
answer with.

| code | reason | status | retryable | means | do |
|---|---|---|---|---|---|
`, reasonList(ErrorsOfAny()), reasonList(ErrorsAtNodes()))
	for _, f := range failures {
		retryable := ""
		if f.Retryable {
			retryable = "yes"
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %d | %s | %s | %s |\n", f.Code, f.Reason, f.Status, retryable, cell(f.Means), cell(f.Next))
	}
}

// reasonList names failures by their reasons.
func reasonList(all []Failure) string {
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = "`" + f.Reason + "`"
	}
	return strings.Join(names, ", ")
}

func writeFields(b *bytes.Buffer, title string, s *jsonschema.Schema) {
	fmt.Fprintf(b, "\n%s:\n\n", title)
	if len(s.Properties) == 0 {
		b.WriteString("no fields.\n")
		return
	}
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	writeRows(b, "", s, title == "Request")
}

// writeRows writes a row for each field and those within it. Of a request it marks
// what is required.
func writeRows(b *bytes.Buffer, within string, s *jsonschema.Schema, request bool) {
	names := s.PropertyOrder
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(s.Properties))
	}
	for _, name := range names {
		p := s.Properties[name]
		mark, meaning := "", p.Description
		if request && slices.Contains(s.Required, name) {
			mark = " (required)"
		}
		if meaning == "" {
			meaning = answerFields[name]
		}
		fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", within+name, mark, typeName(p), cell(meaning))
		inner, mark := p, "."
		if p.Items != nil {
			inner, mark = p.Items, "[]."
		}
		writeRows(b, within+name+mark, inner, request)
	}
}

// answerFields say what fields mean that have no text of their own; they mean the
// same wherever they stand.
var answerFields = map[string]string{
	"ack_at":                "when the status last changed; absent while pending",
	"ack_status":            "pending, read, completed or rejected",
	"archived":              "it was completed more than 90 days ago",
	"body":                  "the text",
	"in_reply_to":           "ref of the message that it answers",
	"messages":              "the page",
	"pending":               "messages with which nothing was done yet",
	"priority":              "low, normal or high",
	"read":                  "messages that are read and no more",
	"recipient":             "id of the agent",
	"response":              "what the recipient answered",
	"sent_at":               "when it was sent",
	"subject":               "one line; empty: none",
	"additional_signatures": "as they are stored",
	"agent":                 "an agent's id, or the agent",
	"agents":                "the agents: ids, or all that may be known of each",
	"aggregate":             "of this kind and dimension, with this signal",
	"aggregation":           "replace (the latest of each voter counts), sum or append (all count)",
	"artifact":              "the version",
	"artifacts":             "the page",
	"as_of":                 "the place in the log that this was read at",
	"at":                    "when it was, or what time it is of",
	"atomic":                "as it was asked for",
	"brier":                 "of forecasts whose outcome is known",
	"code":                  "whoever has it can enrol a node, once",
	"committed":             "whether items were done, of an atomic batch all; false for a dry run",
	"consistency_token":     "a read that sends it as the header SciDEX-Consistency sees this write",
	"constraint":            "the rule",
	"content":               "the canonical JSON, as it is stored",
	"content_hash":          "what a later update names as its base",
	"count":                 "of signals",
	"created":               "whether it is new",
	"created_at":            "when it was made",
	"created_by":            "who made it: an agent's id",
	"currency":              "what is summed up",
	"decayed_mean":          "the mean at that time, each signal with half its force after 30 days",
	"dimension":             "of the kind, where it has any",
	"document":              "the schema itself",
	"duels":                 "how many it took part in",
	"elo":                   "of duels",
	"enrolled_at":           "since when the node takes part",
	"error":                 "why an item was refused: the body of an error",
	"everyone":              "whether all in the scope are meant; agents is empty then",
	"expires_at":            "until when it holds",
	"forecast":              "what was forecast: 0 to 1",
	"forecasts":             "how many",
	"former_handles":        "they lead to the agent still",
	"from":                  "where the link begins",
	"granted_at":            "when the roles were given",
	"granted_by":            "who gave them",
	"handle":                "by which the agent is addressed, without the @",
	"history":               "one by one",
	"id":                    "its id",
	"idempotency":           "none (no key was given), fresh, replayed (the first answer to this key) or deduplicated (nothing was to be done)",
	"is_current":            "whether it is the type's latest",
	"is_latest":             "false once it is superseded",
	"items":                 "what became of each item, in order: one of write, link, signal, error and skipped",
	"kind":                  "its kind",
	"lab":                   "the lab's name, for people",
	"last_seen_at":          "when the node last asked, to the minute",
	"link":                  "the answer to an item that links",
	"links":                 "refs of the links made with it",
	"max":                   "the largest; null without any",
	"may_delegate":          "whether others may act for the agent",
	"mean":                  "of the values",
	"members":               "the page",
	"merged":                "whether it was merged with what had changed since the base",
	"message":               "for people",
	"metric":                "brier for forecasts",
	"min":                   "the smallest; null without any",
	"next_cursor":           "for the next page; absent on the last",
	"node":                  "the node after the write",
	"nodes":                 "by id",
	"of":                    "how many took part",
	"op":                    "the verb",
	"outcome":               "1: it came true; 0: it did not",
	"path":                  "JSON pointer to the fault; empty for the whole",
	"place":                 "1 is the best",
	"predicate":             "of the link",
	"problems":              "every fault: path, constraint, message, value_received, suggestion",
	"provenance":            "on whose behalf it was written",
	"provenance_refs":       "refs of what it derives from",
	"quadratic_total":       "(Σ√v)² over voters",
	"quality_score":         "the mean of its ranks; null without any",
	"rating":                "by Elo; all begin at 1500",
	"upgraded_content":      "the content in the form of the type's current schema, when that broke with the form of the version",
	"redaction":             "when, by whom and why its content was taken out",
	"redirected_from":       "the @handle that was asked for, when it is a former one",
	"ref":                   "the name of what was read or written; a version's has its content hash",
	"ref_alias":             "a name by which later items refer to what this one writes",
	"request_id":            "names this request in logs and reports",
	"revision":              "the version's number in the artifact's history: 1, 2, 3 …",
	"revoked":               "hash of the token's issuer and id, or of the agent",
	"revoked_at":            "when it ended; null while it holds",
	"roles":                 "permissions in a scope, or what an agent is addressed as",
	"schema_version":        "version of the type's schema",
	"schemas":               "by type",
	"scope":                 "commons, or a private scope's id; or the scope",
	"scopes":                "ids of scopes, or the scopes",
	"score":                 "(forecast − outcome)²: 0 is best",
	"seq":                   "the last place in the log of what was written; 0 when nothing was",
	"signal":                "the answer to an item that signals",
	"signals":               "by kind and dimension",
	"skipped":               "whether another item of an atomic batch failed",
	"state":                 "of the type's lifecycle",
	"suggestion":            "a near value that would pass, or null",
	"sum":                   "of the values",
	"sum_sq":                "of the values' squares",
	"superseded_by":         "ref of what replaces it",
	"title":                 "one line",
	"to":                    "where the link leads",
	"type":                  "the artifact's type",
	"updated_at":            "when this version was written",
	"updated_by":            "who wrote this version: an agent's id",
	"value_received":        "what was sent there; null when it is absent or too large to repeat",
	"voter":                 "who gave it: an agent's id",
	"voters":                "of agents who gave one",
	"warnings":              "faults that were let pass",
	"write":                 "the answer to an item that writes an artifact",
}

// typeName names a field's type in a word or two.
func typeName(s *jsonschema.Schema) string {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "null" })
	name := strings.Join(types, " or ")
	switch {
	case len(types) == len(anyButNull):
		return "any"
	case name == "array" && s.Items != nil:
		return "array of " + typeName(s.Items)
	case s.Format != "":
		return s.Format
	case name == "":
		return "any"
	}
	return name
}
