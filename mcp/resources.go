package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	artifactURI = "scidex://artifact/"
	schemaURI   = "scidex://schema/"
	linksURI    = "scidex://links/"
	skillURI    = "scidex://skill"
	jsonType    = "application/json"
	skillType   = "text/markdown"

	artifactTemplate = artifactURI + "{+ref}"
	schemaTemplate   = schemaURI + "{type}"
	linksTemplate    = linksURI + "{+ref}{?predicate}"
)

func (c *Config) addResources(s *sdk.Server) {
	skill := string(Skill(c.Verbs, verb.Examples(), c.Names))
	s.AddResource(&sdk.Resource{
		Name: "skill", Title: "How to work with SciDEX", URI: skillURI, MIMEType: skillType, Size: int64(len(skill)),
		Description: "rules, worked calls and all tools: read it before the first write",
	}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: skillURI, MIMEType: skillType, Text: skill}}}, nil
	})
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "artifact", Title: "An artifact", URITemplate: artifactTemplate, MIMEType: jsonType,
		Description: "an artifact by its ref: as it is now (scidex://artifact/gene:APOE), or one version of it (…@sha256:…)",
	}, c.read(artifactURI, func(ref string) (string, any) { return verb.Get.Name, map[string]any{"ref": ref} }))
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "schema", Title: "The schema of a type", URITemplate: schemaTemplate, MIMEType: jsonType,
		Description: "what artifacts of a type are made of: scidex://schema/hypothesis",
	}, c.read(schemaURI, func(typ string) (string, any) { return verb.Schema.Name, map[string]any{"type": typ} }))
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "links", Title: "The links of an artifact", URITemplate: linksTemplate, MIMEType: jsonType,
		Description: "the first links from and to an artifact, with what is at the other end: scidex://links/hypothesis:h-1, or those of one predicate: scidex://links/hypothesis:h-1?predicate=supports",
	}, c.read(linksURI, linksOf))
}

// linksOf returns the request of a resource of links.
func linksOf(rest string) (string, any) {
	ref, query, asked := strings.Cut(rest, "?predicate=")
	in := map[string]any{"ref": ref, "include_targets": true}
	if asked {
		in["predicates"] = []string{query}
	}
	return verb.Links.Name, in
}

// read returns a handler that reads what stands behind a prefix by a verb.
func (c *Config) read(prefix string, request func(rest string) (name string, in any)) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		uri := req.Params.URI
		rest, err := url.PathUnescape(strings.TrimPrefix(uri, prefix))
		if err != nil {
			return nil, sdk.ResourceNotFoundError(uri)
		}
		name, in := request(rest)
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		answer, err := c.Call(ctx, name, raw)
		switch {
		case artifact.IsCode(err, artifact.CodeNotFound), artifact.IsCode(err, artifact.CodeValidationFailed):
			return nil, sdk.ResourceNotFoundError(uri)
		case err != nil:
			return nil, artifact.AsError(err)
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: jsonType, Text: string(answer)}}}, nil
	}
}
