package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// maxCompletions is how many values one answer may hold, by the protocol.
const maxCompletions = 100

// complete answers what an argument that somebody types may become. All comes from
// verbs, for the caller: what they may not see completes nothing.
func (c *Config) complete(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	typed := req.Params.Argument.Value
	var values []string
	var err error
	switch what := req.Params.Argument.Name; {
	case what == "type" && req.Params.Ref.URI == schemaTemplate:
		values, err = c.types(ctx, typed, "")
	case what == "ref" && (req.Params.Ref.URI == artifactTemplate || req.Params.Ref.URI == linksTemplate):
		values, err = c.refs(ctx, typed)
	case what == "ref" && req.Params.Ref.Name == checkHypothesis:
		if !strings.Contains(typed, ":") {
			typed = "hypothesis:" + typed
		}
		values, err = c.refs(ctx, typed)
	case what == "predicate" && req.Params.Ref.URI == linksTemplate:
		of := ""
		if req.Params.Context != nil {
			of, _, _ = strings.Cut(req.Params.Context.Arguments["ref"], ":")
		}
		values, err = c.predicates(ctx, of, typed)
	}
	if err != nil && !artifact.IsCode(err, artifact.CodeNotFound) && !artifact.IsCode(err, artifact.CodeValidationFailed) {
		return nil, artifact.AsError(err)
	}
	more := len(values) > maxCompletions
	if more {
		values = values[:maxCompletions]
	}
	return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: append([]string{}, values...), HasMore: more}}, nil
}

// refs completes a type, and behind its colon an id.
func (c *Config) refs(ctx context.Context, typed string) ([]string, error) {
	typ, id, found := strings.Cut(typed, ":")
	if !found {
		return c.types(ctx, typed, ":")
	}
	in := verb.ListRequest{Type: typ, Sort: json.RawMessage(`["-updated_at"]`), Limit: maxCompletions + 1}
	if id != "" {
		filter, err := json.Marshal(map[string]string{"field": "id", "op": "starts_with", "value": id})
		if err != nil {
			return nil, err
		}
		in.Filter = filter
	}
	page, err := invoke(ctx, c, verb.List, in)
	if err != nil {
		return nil, err
	}
	var refs []string
	for i := range page.Artifacts {
		refs = append(refs, page.Artifacts[i].Ref.Type+":"+page.Artifacts[i].Ref.ID)
	}
	return refs, nil
}

// types completes the name of a type.
func (c *Config) types(ctx context.Context, typed, suffix string) ([]string, error) {
	all, err := invoke(ctx, c, verb.Schema, verb.SchemaRequest{})
	if err != nil {
		return nil, err
	}
	var types []string
	for i := range all.Schemas {
		if strings.HasPrefix(all.Schemas[i].Type, typed) {
			types = append(types, all.Schemas[i].Type+suffix)
		}
	}
	return types, nil
}

// predicates completes a predicate that artifacts of a type may have, or of any type.
func (c *Config) predicates(ctx context.Context, typ, typed string) ([]string, error) {
	all, err := invoke(ctx, c, verb.Schema, verb.SchemaRequest{Type: typ})
	if err != nil {
		return nil, err
	}
	var predicates []string
	for i := range all.Schemas {
		var doc struct{ Links map[string]json.RawMessage }
		if err := json.Unmarshal(all.Schemas[i].Document, &doc); err != nil {
			return nil, err
		}
		for p := range doc.Links {
			if strings.HasPrefix(p, typed) {
				predicates = append(predicates, p)
			}
		}
	}
	slices.Sort(predicates)
	return slices.Compact(predicates), nil
}

// invoke calls a verb with types, through the door that c has.
func invoke[In, Out any](ctx context.Context, c *Config, v verb.Verb[In, Out], in In) (out Out, err error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	answer, err := c.Call(ctx, v.Name, raw)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(answer, &out)
}
