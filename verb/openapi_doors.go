package verb

// A door is what a server serves beside the verbs.
type door struct {
	method, path string
	id           string
	summary      string
	open         bool // without a token
	request      any  // schema; nil for none
	response     any  // schema; nil for one that is not JSON
	media        string
	query        []string // names of parameters
	failures     []string // statuses of errors
}

// doors are in the order of the reader's need. What only a hub or only a node has
// says so.
var doors = []door{
	{
		method: "post", path: SessionPath, id: "session.open", summary: "Give a token for a cookie, which scripts cannot read.", open: true,
		request: schemaOf[sessionRequest](), response: schemaOf[SessionInfo](), failures: []string{"400", "401", "403", "422", "429"},
	},
	{
		method: "get", path: SessionPath, id: "session.show", summary: "Tell whose the cookie or token is.",
		response: schemaOf[SessionInfo](), failures: []string{"401", "403", "429"},
	},
	{
		method: "delete", path: SessionPath, id: "session.end", summary: "Revoke the token and clear the cookie.",
		response: revokedSchema, failures: []string{"403", "429", "503"},
	},
	{
		method: "post", path: SessionPath + "/refresh", id: "session.refresh", summary: "Renew the token and the cookie.",
		response: schemaOf[SessionInfo](), failures: []string{"401", "403", "429", "503"},
	},
	{
		method: "post", path: SessionPath + "/logout", id: "session.logout", summary: "The same as DELETE, for forms.",
		response: revokedSchema, failures: []string{"403", "429", "503"},
	},
	{
		method: "get", path: SubscribePath, id: "subscribe", summary: "Stream events as server-sent events: each has the event_id as id and the event, as poll answers it, as data; event: end says why a stream ends.",
		media: "text/event-stream", query: []string{"types", "filter", "since"}, failures: []string{"400", "401", "403", "409", "410", "422", "429", "503"},
	},
	{
		method: "post", path: SubscribePath, id: "subscribe.post", summary: "The same, with what is wanted as a body.",
		request: schemaOf[SubscribeRequest](), media: "text/event-stream", failures: []string{"400", "401", "403", "409", "410", "422", "429", "503"},
	},
	{
		method: "get", path: "/feed", id: "feed", summary: "Follow the log from a position, one JSON frame a line; at a hub. docs/PROTOCOL.md describes the frames.",
		media: "application/x-ndjson", query: []string{"cursor", "hub", "chain"}, failures: []string{"400", "401", "403", "409", "410", "429"},
	},
	{
		method: "get", path: "/feed/digest", id: "feed.digest", summary: "Counts and hashes of all that the caller follows, at a seq; at a hub.",
		response: anyObject, query: []string{"seq", "hub"}, failures: []string{"401", "403", "409", "422", "429"},
	},
	{
		method: "post", path: EnrolPath, id: "nodes.enrol", summary: "Enrol a node by an invitation's code, under its own key; at a hub.", open: true,
		request: schemaOf[EnrolRequest](), response: schemaOf[Enrolment](), failures: []string{"400", "401", "403", "422", "429"},
	},
	{
		method: "post", path: "/graphql", id: "graphql", summary: "GraphQL; at a node. docs/GRAPHQL.md describes it, with its subscriptions.",
		request: anyObject, response: anyObject, failures: []string{"401", "403", "429"},
	},
	{method: "get", path: "/.well-known/jwks.json", id: "keys", summary: "The public keys that sign the network's tokens (RFC 7517).", open: true, response: anyObject},
	{method: "get", path: "/healthz", id: "health", summary: "Whether the process runs.", open: true, response: anyObject},
	{method: "get", path: "/readyz", id: "ready", summary: "Whether it can serve now, and why not.", open: true, response: anyObject, failures: []string{}},
}

var (
	anyObject     = map[string]any{"type": "object"}
	revokedSchema = map[string]any{"type": "object", "required": []string{"revoked"}, "properties": map[string]any{"revoked": map[string]any{"type": "boolean"}}}
)

// addDoors adds the doors to an OpenAPI document's paths.
func addDoors(paths map[string]any) {
	for _, d := range doors {
		done := map[string]any{"description": "done"}
		switch {
		case d.response != nil:
			done["content"] = jsonBody(d.response, nil)
		case d.media != "":
			done["content"] = map[string]any{d.media: map[string]any{}}
		}
		responses := map[string]any{"200": done}
		for _, status := range d.failures {
			responses[status] = failureResponse("a structured error", nil)
		}
		op := map[string]any{"operationId": d.id, "summary": d.summary, "tags": []string{"doors"}, "responses": responses}
		if d.request != nil {
			op["requestBody"] = map[string]any{"required": true, "content": jsonBody(d.request, nil)}
		}
		if d.open {
			op["security"] = []any{}
		}
		var parameters []any
		for _, name := range d.query {
			parameters = append(parameters, map[string]any{"name": name, "in": "query", "schema": map[string]any{"type": "string"}})
		}
		if parameters != nil {
			op["parameters"] = parameters
		}
		item, ok := paths[d.path].(map[string]any)
		if !ok {
			item = map[string]any{}
			paths[d.path] = item
		}
		item[d.method] = op
	}
}
