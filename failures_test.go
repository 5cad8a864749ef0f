package substrate_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestFailures holds the table of failures to the source, both ways: each
// artifact.Error that the program makes has its code and reason in the table, and
// each entry of the table is made somewhere.
func TestFailures(t *testing.T) {
	s := &failureScan{t: t, fset: token.NewFileSet(), constants: map[string]string{}, packages: map[string][]*ast.File{}, made: map[string]bool{}}
	s.parse()
	for dir, files := range s.packages {
		for _, f := range files {
			s.scan(dir, f)
		}
	}
	seen := map[string]bool{}
	for _, f := range verb.Failures() {
		if seen[f.Reason] {
			t.Errorf("the reason %s stands in the table twice", f.Reason)
		}
		seen[f.Reason] = true
		if f.Status < 400 || f.Means == "" || f.Next == "" {
			t.Errorf("%s: a failure has a status of its own and says what it means and what to do", f.Reason)
		}
		if !s.made[f.Reason] {
			t.Errorf("nothing answers %s (%s): take it out of the table", f.Code, f.Reason)
		}
	}
	for name, value := range s.constants {
		if strings.HasPrefix(name, "Reason") && !seen[value] {
			t.Errorf("artifact.%s is not in the table", name)
		}
	}
	t.Logf("%d failures, made at %d places", len(seen), s.places)
}

// A failureScan finds where errors are made.
type failureScan struct {
	t         *testing.T
	fset      *token.FileSet
	constants map[string]string // of package artifact: Code… and Reason… by name
	packages  map[string][]*ast.File
	made      map[string]bool // by reason
	places    int
}

func (s *failureScan) parse() {
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".") && file != "." || d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "generated") {
			return fs.SkipDir
		}
		if err != nil || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(s.fset, file, nil, 0)
		if err != nil {
			return err
		}
		s.packages[path.Dir(file)] = append(s.packages[path.Dir(file)], f)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range s.packages["artifact"] {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || len(v.Names) != 1 || len(v.Values) != 1 {
					continue
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					s.constants[v.Names[0].Name], _ = strconv.Unquote(lit.Value)
				}
			}
		}
	}
}

// scan finds what a file makes: literals of artifact.Error, and reasons that are
// given to one afterwards.
func (s *failureScan) scan(dir string, f *ast.File) {
	var stack []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		switch n := n.(type) {
		case *ast.CompositeLit:
			if isError(dir, n.Type) && len(n.Elts) > 0 && !decodes(stack) {
				s.literal(dir, n, stack)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "Reason" && len(n.Rhs) == len(n.Lhs) {
					s.assigned(n.Rhs[i])
				}
			}
		}
		return true
	})
}

// isError reports whether a type is artifact.Error.
func isError(dir string, typ ast.Expr) bool {
	if sel, ok := typ.(*ast.SelectorExpr); ok {
		pkg, ok := sel.X.(*ast.Ident)
		return ok && pkg.Name == "artifact" && sel.Sel.Name == "Error"
	}
	id, ok := typ.(*ast.Ident)
	return ok && dir == "artifact" && id.Name == "Error"
}

// decodes reports whether a literal is what another server's error is read into.
func decodes(stack []ast.Node) bool {
	return slices.ContainsFunc(stack, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		return ok && f.Name.Name == "UnmarshalJSON"
	})
}

func (s *failureScan) literal(dir string, lit *ast.CompositeLit, stack []ast.Node) {
	fields := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			fields[fmt.Sprint(kv.Key)] = kv.Value
		}
	}
	codes := s.values(dir, fields["Code"], stack)
	reasons := codes
	if fields["Reason"] != nil {
		reasons = s.values(dir, fields["Reason"], stack)
	}
	retryable := fmt.Sprint(fields["Retryable"]) == "true"
	if len(codes) == 0 || len(reasons) == 0 {
		s.t.Errorf("%s: the code and the reason of an error are constants of package artifact", s.fset.Position(lit.Pos()))
	}
	for i, reason := range reasons {
		code := codes[min(i, len(codes)-1)]
		f, ok := verb.FailureOf(&artifact.Error{Code: artifact.Code(code), Reason: reason})
		if !ok {
			s.t.Errorf("%s: %s (%s) is not in the table of failures", s.fset.Position(lit.Pos()), code, reason)
		} else if f.Retryable != retryable {
			s.t.Errorf("%s: retryable is %t, and the table says that it is not", s.fset.Position(lit.Pos()), retryable)
		}
		s.made[reason] = true
		s.places++
	}
}

func (s *failureScan) assigned(value ast.Expr) {
	if v, ok := s.constant(value); ok {
		s.made[v] = true
		s.places++
	}
	if lit, ok := value.(*ast.BasicLit); ok && lit.Value != `""` {
		s.t.Errorf("%s: a reason is a constant of package artifact", s.fset.Position(value.Pos()))
	}
}

// constant returns the value of a code or reason of package artifact.
func (s *failureScan) constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		v, ok := s.constants[e.Name]
		return v, ok
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok && pkg.Name == "artifact" {
			v, ok := s.constants[e.Sel.Name]
			return v, ok
		}
	}
	return "", false
}

// values returns what an expression may be: a constant, or a parameter of the
// function around it, whatever that is called with.
func (s *failureScan) values(dir string, e ast.Expr, stack []ast.Node) (all []string) {
	if v, ok := s.constant(e); ok {
		return []string{v}
	}
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	name, place := parameter(id.Name, stack)
	if place < 0 {
		return nil
	}
	for _, f := range s.packages[dir] {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) <= place {
				return true
			}
			if fun, ok := call.Fun.(*ast.Ident); !ok || fun.Name != name {
				return true
			}
			v, ok := s.constant(call.Args[place])
			if !ok {
				s.t.Errorf("%s: %s takes constants of package artifact", s.fset.Position(call.Pos()), name)
			}
			all = append(all, v)
			return true
		})
	}
	return all
}

// parameter returns the function around a place that has this parameter, and which
// of its parameters that is.
func parameter(name string, stack []ast.Node) (function string, place int) {
	for i, n := range slices.Backward(stack) {
		var params *ast.FieldList
		switch f := n.(type) {
		case *ast.FuncDecl:
			function, params = f.Name.Name, f.Type.Params
		case *ast.FuncLit:
			assign, ok := stack[i-1].(*ast.AssignStmt)
			if !ok {
				continue
			}
			function, params = fmt.Sprint(assign.Lhs[0]), f.Type.Params
		default:
			continue
		}
		place = 0
		for _, field := range params.List {
			for _, n := range field.Names {
				if n.Name == name {
					return function, place
				}
				place++
			}
		}
	}
	return "", -1
}
