package verb

import (
	"net/http"
	"strconv"
	"strings"
)

// OpenAPI returns the OpenAPI 3.1 document of every bound verb and of the doors
// beside them, to be encoded as JSON.
func (r *Registry) OpenAPI(version string, examples []Example) map[string]any {
	paths := make(map[string]any, len(r.order))
	for _, b := range r.order {
		shown := ExamplesOf(examples, b.name)
		responses := r.failureResponses(b.name, shown)
		responses["200"] = map[string]any{"description": "done", "content": jsonBody(b.out, answersOf(shown, http.StatusOK))}
		paths[PathPrefix+b.name] = map[string]any{"post": map[string]any{
			"operationId": b.name,
			"summary":     b.summary,
			"tags":        []string{string(b.effect)},
			"requestBody": map[string]any{"required": true, "content": jsonBody(b.in, requestsOf(shown))},
			"responses":   responses,
		}}
	}
	addDoors(paths)
	return map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "SciDEX substrate", "version": version, "license": map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"security": []any{map[string]any{"token": []string{}}, map[string]any{"cookie": []string{}}},
		"paths":    paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{
				"token":  map[string]any{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
				"cookie": map[string]any{"type": "apiKey", "in": "cookie", "name": CookieName},
			},
			"schemas": map[string]any{"Error": errorSchema()},
		},
	}
}

// failureResponses returns the responses of a verb's errors by status, each with
// the codes and reasons that it may have.
func (r *Registry) failureResponses(name string, shown []Example) map[string]any {
	all := append(r.Errors(name), ErrorsOfAny()...)
	responses := map[string]any{"default": failureResponse("a structured error", nil)}
	texts := map[int][]string{}
	for _, f := range append(all, ErrorsAtNodes()...) {
		line := string(f.Code)
		if f.Reason != line {
			line += " (" + f.Reason + ")"
		}
		texts[f.Status] = append(texts[f.Status], line+": "+f.Means)
	}
	for status, lines := range texts {
		responses[strconv.Itoa(status)] = failureResponse(strings.Join(lines, "\n\n"), answersOf(shown, status))
	}
	return responses
}

func failureResponse(description string, examples map[string]any) map[string]any {
	return map[string]any{"description": description, "content": jsonBody(map[string]any{"$ref": "#/components/schemas/Error"}, examples)}
}

// requestsOf returns the requests of examples that were done.
func requestsOf(all []Example) map[string]any {
	shown := map[string]any{}
	for i, e := range all {
		if e.Status == http.StatusOK {
			shown["example"+strconv.Itoa(i+1)] = map[string]any{"summary": e.Title, "value": e.Request}
		}
	}
	return shown
}

// answersOf returns the answers of examples with this status.
func answersOf(all []Example, status int) map[string]any {
	shown := map[string]any{}
	for i, e := range all {
		if e.Status == status {
			shown["example"+strconv.Itoa(i+1)] = map[string]any{"summary": e.Title, "value": e.Response}
		}
	}
	return shown
}

func jsonBody(schema any, examples map[string]any) map[string]any {
	media := map[string]any{"schema": schema}
	if len(examples) > 0 {
		media["examples"] = examples
	}
	return map[string]any{"application/json": media}
}

func errorSchema() map[string]any {
	text := map[string]any{"type": "string"}
	codes, known := []string{}, map[string]bool{}
	for _, f := range failures {
		if code := string(f.Code); !known[code] {
			known[code] = true
			codes = append(codes, code)
		}
	}
	return map[string]any{
		"type":     "object",
		"required": []string{"error", "message", "details", "request_id", "retryable", "retry_after_ms"},
		"properties": map[string]any{
			"error":          map[string]any{"type": "string", "enum": codes},
			"message":        text,
			"details":        map[string]any{"type": "object", "required": []string{"reason"}, "properties": map[string]any{"reason": text}},
			"request_id":     text,
			"retryable":      map[string]any{"type": "boolean"},
			"retry_after_ms": map[string]any{"type": []string{"integer", "null"}},
			"problems": map[string]any{"type": "array", "items": map[string]any{
				"type":       "object",
				"required":   []string{"path", "constraint", "message"},
				"properties": map[string]any{"path": text, "constraint": text, "message": text, "value_received": map[string]any{}, "suggestion": map[string]any{}},
			}},
			"your_base":           map[string]any{"type": "string", "description": "of a version_conflict: the version that the write was based on"},
			"current":             map[string]any{"type": "object", "description": "of a version_conflict: the version that is current"},
			"diff_from_your_base": map[string]any{"type": "array", "description": "of a version_conflict: JSON Patch (RFC 6902) of {content, state, title} from your base to current"},
			"merge_hint":          map[string]any{"type": "object", "description": "of a version_conflict: whether both changes go together, and what they make"},
		},
	}
}
