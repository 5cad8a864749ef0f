package verb

// OpenAPI returns the OpenAPI 3.1 document of every bound verb, to be encoded as
// JSON.
func (r *Registry) OpenAPI(version string) map[string]any {
	paths := make(map[string]any, len(r.order))
	failure := map[string]any{
		"description": "a structured error",
		"content":     jsonBody(map[string]any{"$ref": "#/components/schemas/Error"}),
	}
	for _, b := range r.order {
		paths[PathPrefix+b.name] = map[string]any{"post": map[string]any{
			"operationId": b.name,
			"summary":     b.summary,
			"tags":        []string{string(b.effect)},
			"requestBody": map[string]any{"required": true, "content": jsonBody(b.in)},
			"responses": map[string]any{
				"200":     map[string]any{"description": "done", "content": jsonBody(b.out)},
				"default": failure,
			},
		}}
	}
	return map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "SciDEX substrate", "version": version, "license": map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"security": []any{map[string]any{"token": []string{}}},
		"paths":    paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
			"schemas":         map[string]any{"Error": errorSchema()},
		},
	}
}

func jsonBody(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

func errorSchema() map[string]any {
	text := map[string]any{"type": "string"}
	return map[string]any{
		"type":     "object",
		"required": []string{"error", "message", "details", "request_id", "retryable", "retry_after_ms"},
		"properties": map[string]any{
			"error":          text,
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
		},
	}
}
