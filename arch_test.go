package substrate_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/scidex-ai/substrate/"

// layers lists which packages of this module each package may import. Add an
// edge only with its reason in docs/ARCHITECTURE.md.
var layers = map[string][]string{
	"artifact":                 {},
	"analysis":                 {"artifact"},
	"query":                    {"artifact"},
	"verb":                     {"artifact", "analysis", "query"},
	"event":                    {"artifact", "verb"},
	"embed":                    {},
	"rank":                     {"artifact", "embed", "verb"},
	"replicate":                {"artifact"},
	"mcp":                      {"artifact", "verb"},
	"hub":                      {"artifact", "analysis", "embed", "event", "mcp", "query", "rank", "verb", "replicate"},
	"graph/scalar":             {"artifact"},
	"graph/view":               {"artifact", "verb"},
	"graph/transport":          {},
	"graph/internal/generated": {"artifact", "verb", "graph/scalar", "graph/view"},
	"graph":                    {"artifact", "verb", "graph/view", "graph/transport", "graph/internal/generated"},
	"node":                     {"artifact", "analysis", "embed", "event", "mcp", "query", "rank", "verb", "replicate", "graph", "graph/view", "graph/transport", "internal/sqlite"},
	"sample":                   {},
	"internal/declared":        {"artifact", "verb"},
	"internal/embedtest":       {},
	"internal/load":            {"artifact", "verb"},
	"internal/memory":          {},
	"internal/postgres":        {},
	"internal/sqlite":          {},
	"internal/pgtest":          {"internal/postgres"},
	"cmd/scidex":               {"artifact", "embed", "event", "mcp", "verb", "replicate", "hub", "node", "sample", "internal/load", "internal/memory", "internal/postgres"},
	"cmd/torture":              {"artifact", "verb", "internal/postgres"},
	"cmd/bench":                {"artifact", "verb", "replicate", "hub", "node", "internal/load", "internal/memory", "internal/postgres"},
}

// pure are the packages that do no I/O, and what they may import beside the
// standard library's pure part and this module.
var pure = map[string][]string{
	"artifact": {
		"github.com/gowebpki/jcs", "github.com/santhosh-tekuri/jsonschema/v6", "github.com/agnivade/levenshtein",
		"golang.org/x/text/", "github.com/evanphx/json-patch/v5", "github.com/wI2L/jsondiff", "github.com/sergi/go-diff",
	},
	"analysis": {"golang.org/x/text/", "github.com/blevesearch/snowballstem"},
	"query":    {"github.com/gowebpki/jcs"},
}

// impure are packages of the standard library that do I/O.
var impure = []string{"net", "net/http", "os", "os/exec", "database/sql", "syscall"}

// TestLayers checks the direction of every import, and that each package has one
// package comment. It parses the files itself: the test cache does not see what
// a "go list" of another process reads.
func TestLayers(t *testing.T) {
	comments := map[string]int{}
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".") && file != "." || d.Name() == "node_modules" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if err != nil || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		name := path.Dir(file)
		allowed, known := layers[name]
		if !known {
			t.Errorf("%s: %s is not in the layers table", file, name)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		if f.Doc != nil {
			comments[name]++
		}
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			checkImport(t, file, name, p, allowed)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range layers {
		if n := comments[name]; n != 1 && !strings.HasSuffix(name, "/generated") {
			t.Errorf("%s has %d package comments, want 1", name, n)
		}
	}
}

func checkImport(t *testing.T, file, name, imported string, allowed []string) {
	t.Helper()
	if dep, ours := strings.CutPrefix(imported, module); ours {
		if !slices.Contains(allowed, dep) {
			t.Errorf("%s imports %s", file, dep)
		}
		return
	}
	libraries, isPure := pure[name]
	if !isPure {
		return
	}
	outside := strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
	if outside && !slices.ContainsFunc(libraries, func(l string) bool { return strings.HasPrefix(imported, l) }) || slices.Contains(impure, imported) {
		t.Errorf("%s imports %s, and %s does no I/O", file, imported, name)
	}
}
