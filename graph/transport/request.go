package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"

	"github.com/99designs/gqlgen/graphql"
)

// errNoQuery reports a request without a document, nor a hash to find it by.
var errNoQuery = errors.New("query is missing")

// decodeRequest reads the one JSON object that a POST body or the payload of a
// subscribe message must be. Its errors may go to the caller: none quotes the input.
func decodeRequest(text []byte) (*graphql.RawParams, error) {
	if t := bytes.TrimLeft(text, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return nil, errors.New("the request must be one JSON object")
	}
	var in struct {
		Query         *string        `json:"query"`
		OperationName *string        `json:"operationName"`
		Variables     map[string]any `json:"variables"`
		Extensions    map[string]any `json:"extensions"`
	}
	if err := decodeJSON(text, &in); err != nil {
		return nil, err
	}
	p := &graphql.RawParams{Variables: in.Variables, Extensions: in.Extensions}
	if in.OperationName != nil {
		p.OperationName = *in.OperationName
	}
	if in.Query != nil {
		p.Query = *in.Query
	}
	return p, needQuery(p)
}

// decodeURL reads the parameters of a GET.
func decodeURL(q url.Values) (*graphql.RawParams, error) {
	p := &graphql.RawParams{Query: q.Get("query"), OperationName: q.Get("operationName")}
	for name, to := range map[string]*map[string]any{"variables": &p.Variables, "extensions": &p.Extensions} {
		if text := q.Get(name); text != "" {
			if err := decodeJSON([]byte(text), to); err != nil {
				return nil, err
			}
		}
	}
	return p, needQuery(p)
}

func needQuery(p *graphql.RawParams) error {
	if _, hashed := p.Extensions["persistedQuery"].(map[string]any); p.Query == "" && !hashed {
		return errNoQuery
	}
	return nil
}

// decodeJSON keeps numbers as written: a variable may be an integer above 2^53.
func decodeJSON(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
			return errors.New(t.Field + " has the wrong JSON type")
		}
		return errors.New("malformed JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("malformed JSON")
	}
	return nil
}
