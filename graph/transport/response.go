package transport

import (
	"encoding/json"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// appendResponse appends r as JSON. It copies r.Data, which gqlgen reuses for a
// subscription's next event, and leaves `data` out if r has none: a request error.
func appendResponse(b []byte, r *graphql.Response) ([]byte, error) {
	b = append(b, '{')
	var err error
	member := func(name string, v any) {
		if err != nil {
			return
		}
		var text []byte
		if text, err = json.Marshal(v); err == nil {
			b = append(appendName(b, name), text...)
		}
	}
	if len(r.Errors) > 0 {
		member("errors", r.Errors)
	}
	if r.Data != nil {
		b = append(appendName(b, "data"), r.Data...)
	}
	if r.Label != "" {
		member("label", r.Label)
	}
	if len(r.Path) > 0 {
		member("path", r.Path)
	}
	if r.HasNext != nil {
		member("hasNext", *r.HasNext)
	}
	if len(r.Extensions) > 0 {
		member("extensions", r.Extensions)
	}
	return append(b, '}'), err
}

func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), `":`...)
}

// requestFailed reports whether r says that nothing was executed.
func requestFailed(r *graphql.Response) bool { return r.Data == nil && len(r.Errors) > 0 }

func errorResponse(errs ...*gqlerror.Error) *graphql.Response { return &graphql.Response{Errors: errs} }
