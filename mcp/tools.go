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

// destructive verbs take something away that no other verb brings back as it was.
var destructive = []string{verb.Redact.Name, verb.ConsumersDelete.Name, verb.ScopesRevoke.Name, verb.TokensRevoke.Name, verb.NodesRevoke.Name, verb.Unlink.Name}

// ToolName returns the name of a verb's tool.
func (n Names) ToolName(verbName string) string {
	if n == Underscores {
		return "scidex_" + strings.ReplaceAll(verbName, "/", "_")
	}
	return "scidex." + strings.ReplaceAll(verbName, "/", ".")
}

func (c *Config) tool(v *verb.Info) *sdk.Tool {
	no, destroys := false, slices.Contains(destructive, v.Name)
	return &sdk.Tool{
		Name: c.Names.ToolName(v.Name), Title: v.Name, Description: v.Summary,
		InputSchema: clientSchema(v.In), OutputSchema: answerSchema(v.Out),
		Annotations: &sdk.ToolAnnotations{
			Title: v.Name, ReadOnlyHint: v.Effect == verb.Read, IdempotentHint: v.Effect == verb.Read,
			DestructiveHint: &destroys, OpenWorldHint: &no,
		},
	}
}

// run returns the handler of a verb's tool. What a verb refuses is the tool's error,
// with the same body as over HTTP: the model can act on it.
func (c *Config) run(name string) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		raw := req.Params.Arguments
		if len(raw) == 0 {
			raw = json.RawMessage("{}")
		}
		answer, err := c.Call(ctx, name, raw)
		if err == nil {
			return result(answer, false), nil
		}
		if ctx.Err() != nil { // it was taken back
			return nil, ctx.Err()
		}
		body, err := json.Marshal(artifact.AsError(err))
		if err != nil {
			return nil, err
		}
		return result(body, true), nil
	}
}

func result(body json.RawMessage, failed bool) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(body)}}, StructuredContent: body, IsError: failed}
}
