// Package mcp offers the verbs to agents by the Model Context Protocol: each verb is
// a tool, artifacts and schemas are resources, and prompts say how to go about some
// work. It knows no store: whoever serves it says how a verb is called.
//
// tools.go, resources.go, prompts.go and complete.go are what is offered, skill.go how to
// go about it; mcp.go is how it is served.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/scidex-ai/substrate/verb"
)

// Path is where servers offer it, as streamable HTTP.
const Path = "/mcp"

// A Call runs a verb with a request in JSON, for the caller in ctx, and returns its
// answer in JSON. Its errors are [artifact.Error]s where the caller can act on them.
type Call func(ctx context.Context, name string, request json.RawMessage) (json.RawMessage, error)

// A Config says what is offered.
type Config struct {
	Verbs   []verb.Info
	Call    Call
	Version string // of the program
	Names   Names
	Log     *slog.Logger // nil for none
}

// Names says how tools are named.
type Names string

// The ways to name tools.
const (
	Dots        Names = "dot"        // scidex.messages.send; the default
	Underscores Names = "underscore" // scidex_messages_send, for clients that refuse dots
)

// maxBody is how large a request may be: the largest of a verb, and what is around it.
const maxBody = verb.MaxBatchBytes + 64<<10

const instructions = `SciDEX holds scientific work as typed artifacts: hypotheses, papers, genes, wiki pages, evidence, and the links between them.
A ref names an artifact as type:id, or one version of it as type:id@sha256:….
Find things with search or list, read them with get, and see which types there are with schema.
Before an update, read the artifact and send its content_hash as base_content_hash: a change by somebody else in between is refused as version_conflict, with the present content and a patch, and nothing is lost.
Give each write an idempotency_key, so that it can be sent again when the answer is lost. Try a write with dry_run first when in doubt.
An error says in problems which path is wrong, by which rule, and often what was meant.`

// New returns a server of what c says. It may serve any number of transports.
func New(c Config) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "scidex", Title: "SciDEX", Version: c.Version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: c.Log, PageSize: 100,
		CompletionHandler: c.complete,
		// What is offered stays the same for as long as the program runs.
		Capabilities: &sdk.ServerCapabilities{
			Tools: &sdk.ToolCapabilities{}, Prompts: &sdk.PromptCapabilities{}, Resources: &sdk.ResourceCapabilities{}, Logging: &sdk.LoggingCapabilities{}, //nolint:staticcheck // clients of earlier revisions set a level
		},
	})
	for i := range c.Verbs {
		s.AddTool(c.tool(&c.Verbs[i]), c.run(c.Verbs[i].Name))
	}
	c.addResources(s)
	c.addPrompts(s)
	return s
}

// Handler serves s at [Path]. Each request stands for itself, so there are no sessions
// to take over or to leave behind; who calls is whom its own context names, which an
// outer handler has put there.
func Handler(s *sdk.Server, log *slog.Logger) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{
		Stateless: true, Logger: log, MaxRequestBodyBytes: maxBody,
		// It refuses what a proxy before a server on loopback passes on. What it is
		// against, a page that had its own name lead here, has no token.
		DisableLocalhostProtection: true,
	})
}

// HTTP serves what a server's verbs are at [Path], to callers whom it authenticates as
// the verbs' own door does. Pages of other origins than those that may call are
// refused whatever they bring.
func HTTP(s *verb.Server, origins verb.Origins, version string) http.Handler {
	next := Handler(New(Config{Verbs: s.Registry.Verbs(), Call: s.Call, Version: version, Log: s.Log}), s.Log)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, caller, err := verb.AuthenticateReader(req.Context(), w, req, s.Verifier, s.Limiter)
		if err == nil {
			err = origins.Check(req)
		}
		if err == nil {
			err = s.Limiter.Allow(verb.WithQuotaHeader(ctx, w.Header()), caller, verb.ClassRead, 1) // lists cost too
		}
		var body []byte
		if err == nil { // who sends it slowly is not waited for; the protocol's handler would
			body, err = s.ReadBody(w, req, maxBody)
		}
		if err != nil {
			verb.WriteError(ctx, w, s.Log, err)
			return
		}
		req = req.WithContext(ctx)
		req.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, req)
	})
}

// ServeStdio serves s on standard input and output until the client goes or ctx ends.
func ServeStdio(ctx context.Context, s *sdk.Server) error { return s.Run(ctx, &sdk.StdioTransport{}) }
