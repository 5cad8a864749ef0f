package verb_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsOf holds errorsOf to the package's verbs: each says which errors are its
// own, if only that it has none.
func TestErrorsOf(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	listed, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	verbs := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				return true
			}
			if lit, ok := v.Values[0].(*ast.CompositeLit); ok && isVerb(lit.Type) {
				verbs++
				if !regexp.MustCompile(`\n\t` + v.Names[0].Name + `\.Name:`).Match(listed) {
					t.Errorf("%s: errorsOf says nothing of %s", file, v.Names[0].Name)
				}
			}
			return true
		})
	}
	if verbs < 20 {
		t.Errorf("%d verbs were found", verbs)
	}
}

// isVerb reports whether a type is Verb[In, Out].
func isVerb(typ ast.Expr) bool {
	index, ok := typ.(*ast.IndexListExpr)
	if !ok {
		return false
	}
	id, ok := index.X.(*ast.Ident)
	return ok && id.Name == "Verb"
}
