package transport

import (
	"context"
	"fmt"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Limits of an operation, checked before it runs.
const (
	maxDepth      = 15
	maxRootFields = 30
	maxAliases    = 200
)

// limits is the extension that bounds documents and operations.
type limits struct {
	documentBytes int
	introspection bool
}

func (limits) ExtensionName() string                   { return "Limits" }
func (limits) Validate(graphql.ExecutableSchema) error { return nil }

func (l limits) MutateOperationParameters(_ context.Context, p *graphql.RawParams) *gqlerror.Error {
	if len(p.Query) > l.documentBytes {
		return coded("limit_exceeded", fmt.Sprintf("the document is over %d bytes", l.documentBytes))
	}
	return nil
}

func (l limits) MutateOperationContext(_ context.Context, oc *graphql.OperationContext) *gqlerror.Error {
	oc.DisableIntrospection = !l.introspection
	roots := len(graphql.CollectFields(oc, oc.Operation.SelectionSet, nil))
	if oc.Operation.Operation == ast.Subscription && roots != 1 {
		return coded("GRAPHQL_VALIDATION_FAILED", "a subscription selects exactly one field")
	}
	if roots > maxRootFields {
		return coded("limit_exceeded", fmt.Sprintf("an operation selects at most %d fields at its root", maxRootFields))
	}
	m := measure{left: maxMeasured}
	m.selections(oc.Operation.SelectionSet, 1)
	switch {
	case m.left <= 0:
		return coded("limit_exceeded", "the operation selects too many fields")
	case m.depth > maxDepth && !introspects(oc.Operation.SelectionSet):
		return coded("limit_exceeded", fmt.Sprintf("an operation is at most %d levels deep", maxDepth))
	case m.aliases > maxAliases:
		return coded("limit_exceeded", fmt.Sprintf("an operation has at most %d aliases", maxAliases))
	}
	return nil
}

// maxMeasured bounds the fields that an operation selects, its fragments spread.
const maxMeasured = 20_000

// A measure counts what an operation selects, with its fragments spread out.
type measure struct {
	depth, aliases int
	left           int // fields that may still be counted
}

func (m *measure) selections(set ast.SelectionSet, depth int) {
	for _, s := range set {
		if m.left--; m.left <= 0 {
			return
		}
		switch s := s.(type) {
		case *ast.Field:
			m.depth = max(m.depth, depth)
			if s.Alias != "" && s.Alias != s.Name {
				m.aliases++
			}
			m.selections(s.SelectionSet, depth+1)
		case *ast.InlineFragment:
			m.selections(s.SelectionSet, depth)
		case *ast.FragmentSpread:
			if s.Definition != nil {
				m.selections(s.Definition.SelectionSet, depth)
			}
		}
	}
}

// introspects reports whether all root fields ask for the schema, whose type
// references nest deeper than any data; their depth is bounded by the executor.
func introspects(set ast.SelectionSet) bool {
	for _, s := range set {
		f, ok := s.(*ast.Field)
		if !ok || f.Name != "__schema" && f.Name != "__type" && f.Name != "__typename" {
			return false
		}
	}
	return true
}
