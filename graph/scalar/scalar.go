// Package scalar maps the schema's custom scalars to the artifact package's
// types, so that resolvers deal in those types and never in strings.
//
// It is apart from graph because the generated engine imports it, and graph
// imports the engine.
package scalar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/scidex-ai/substrate/artifact"
)

// MarshalRef writes a ref in its text form.
func MarshalRef(r artifact.Ref) graphql.Marshaler { return graphql.MarshalString(r.String()) }

// UnmarshalRef reads a ref in its text form.
func UnmarshalRef(v any) (artifact.Ref, error) {
	s, ok := v.(string)
	if !ok {
		return artifact.Ref{}, invalid("ref", fmt.Sprintf("a Ref is a string, not %T", v))
	}
	ref, err := artifact.ParseRef(s)
	if err != nil {
		return ref, invalid("ref", "a Ref is type:id or type:id@sha256:<64 hex>")
	}
	return ref, nil
}

// MarshalContentHash writes a hash in its text form.
func MarshalContentHash(h artifact.Hash) graphql.Marshaler { return graphql.MarshalString(h.String()) }

// UnmarshalContentHash reads a hash in its text form.
func UnmarshalContentHash(v any) (artifact.Hash, error) {
	s, ok := v.(string)
	if !ok {
		return artifact.Hash{}, invalid("content_hash", fmt.Sprintf("a ContentHash is a string, not %T", v))
	}
	h, err := artifact.ParseHash(s)
	if err != nil {
		return h, invalid("content_hash", "a ContentHash is sha256: and 64 lower-case hex digits")
	}
	return h, nil
}

// MarshalDateTime writes an instant with milliseconds, in UTC.
func MarshalDateTime(t time.Time) graphql.Marshaler {
	return graphql.MarshalString(t.UTC().Format(artifact.TimeFormat))
}

// UnmarshalDateTime reads an instant of RFC 3339.
func UnmarshalDateTime(v any) (time.Time, error) {
	s, ok := v.(string)
	if !ok {
		return time.Time{}, invalid("date_time", fmt.Sprintf("a DateTime is a string, not %T", v))
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, invalid("date_time", "a DateTime is an instant of RFC 3339, such as 2026-01-02T03:04:05Z")
	}
	return t, nil
}

// MarshalEventID writes a position as a decimal string: a JavaScript number
// loses digits above 2^53.
func MarshalEventID(s artifact.Seq) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		_, _ = io.WriteString(w, `"`+strconv.FormatInt(int64(s), 10)+`"`) // gqlgen's buffer takes all
	})
}

// UnmarshalEventID reads a position from a decimal string or a number.
func UnmarshalEventID(v any) (artifact.Seq, error) {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case int64:
		text = strconv.FormatInt(v, 10)
	default:
		return 0, invalid("event_id", fmt.Sprintf("an EventId is a decimal string, not %T", v))
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("event_id", "an EventId is a decimal string from 0")
	}
	return artifact.Seq(n), nil
}

// MarshalJSON writes a document as it is stored.
func MarshalJSON(raw json.RawMessage) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		if len(raw) == 0 {
			raw = json.RawMessage("null")
		}
		_, _ = w.Write(raw) // gqlgen's buffer takes all
	})
}

// UnmarshalJSON reads any GraphQL value as a document.
func UnmarshalJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// invalid returns the error of a value that is none of a scalar's: the caller's
// fault, and told to the caller.
func invalid(constraint, message string) error {
	return artifact.Invalid(artifact.Problem{Constraint: constraint, Message: message})
}
