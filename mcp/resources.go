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
	jsonType    = "application/json"
)

func (c *Config) addResources(s *sdk.Server) {
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "artifact", Title: "An artifact", URITemplate: artifactURI + "{+ref}", MIMEType: jsonType,
		Description: "an artifact by its ref: as it is now (scidex://artifact/gene:APOE), or one version of it (…@sha256:…)",
	}, c.read(artifactURI, func(ref string) (string, any) { return verb.Get.Name, map[string]any{"ref": ref} }))
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "schema", Title: "The schema of a type", URITemplate: schemaURI + "{type}", MIMEType: jsonType,
		Description: "what artifacts of a type are made of: scidex://schema/hypothesis",
	}, c.read(schemaURI, func(typ string) (string, any) { return verb.Schema.Name, map[string]any{"type": typ} }))
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
