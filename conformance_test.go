package substrate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// specSections are those that docs/CONFORMANCE.md has rows for.
var specSections = []string{
	"5.1", "5.2", "5.3", "6.1", "6.2", "6.3", "7", "7.1", "7.2", "7.2.1", "7.3", "7.4", "8.1", "8.2", "8.3", "8.4",
	"9.1", "9.2", "9.3", "9.4", "10.1", "10.2", "10.3", "10.4", "10.5", "11.1", "11.2", "11.3", "14",
	"L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11", "L12", "L13", "L14", "L15", "L16", "L17", "L18", "L19", "L20",
}

// conformanceTest is how the table names a test.
var conformanceTest = regexp.MustCompile("^`(\\S+) (Test\\w+)(?:/(.+))?`$")

// TestConformanceTable holds docs/CONFORMANCE.md to the tests that it names.
func TestConformanceTable(t *testing.T) {
	raw, err := os.ReadFile("docs/CONFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := newTestFinder(t)
	rows := map[string]int{}
	later := 0
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| section") {
			continue
		}
		if len(cells) < 3 || len(cells) > 4 {
			t.Errorf("%d cells: %s", len(cells), line)
			continue
		}
		section, statement, test := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		rows[section]++
		if statement == "" {
			t.Errorf("nothing is said: %s", line)
		}
		if test == "later" {
			later++
			continue
		}
		m := conformanceTest.FindStringSubmatch(test)
		if m == nil {
			t.Errorf("%s: %q is no test", section, test)
		} else if why := found.missing(m[1], m[2], m[3]); why != "" {
			t.Errorf("%s: %s: %s", section, test, why)
		}
	}
	for _, section := range specSections {
		if rows[section] == 0 {
			t.Errorf("section %s has no row", section)
		}
		delete(rows, section)
	}
	for section := range rows {
		t.Errorf("there is no section %q", section)
	}
	t.Logf("%d sections, %d statements are for later", len(specSections), later)
}

// guaranteeTest is how a guarantee names a test.
var guaranteeTest = regexp.MustCompile("`(\\S+) (Test\\w+)(?:/([^`]+))?`")

// TestGuarantees holds the guarantees of docs/PROTOCOL.md to the tests that they name.
func TestGuarantees(t *testing.T) {
	raw, err := os.ReadFile("docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), "\n## Guarantees\n")
	section, _, _ = strings.Cut(section, "\n## ")
	starts := regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatchIndex(section, -1)
	found := newTestFinder(t)
	for i, at := range starts {
		end := len(section)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		statement := section[at[1]:end]
		if got := section[at[2]:at[3]]; got != strconv.Itoa(i+1) {
			t.Errorf("guarantee %s stands as number %d", got, i+1)
		}
		named := guaranteeTest.FindAllStringSubmatch(statement, -1)
		if len(named) == 0 {
			t.Errorf("no test holds this: %s", statement)
		}
		for _, m := range named {
			if why := found.missing(m[1], m[2], m[3]); why != "" {
				t.Errorf("%d: %s: %s", i+1, m[0], why)
			}
		}
	}
	if len(starts) < 10 {
		t.Errorf("%d guarantees", len(starts))
	}
}

// A testFinder knows the test functions of packages, each with its text.
type testFinder struct {
	t        *testing.T
	packages map[string]map[string]string
}

func newTestFinder(t *testing.T) *testFinder {
	t.Helper()
	return &testFinder{t: t, packages: map[string]map[string]string{}}
}

// missing says why there is no such test, or "". The package root is the module's
// own; a subtest's name stands in the function, or is made by a table in it whose
// verb and name stand there.
func (f *testFinder) missing(dir, name, subtest string) string {
	if dir == "root" {
		dir = "."
	}
	tests, ok := f.packages[dir]
	if !ok {
		tests = f.read(dir)
		f.packages[dir] = tests
	}
	text, ok := tests[name]
	switch {
	case !ok:
		return "there is no such function"
	case subtest == "" || strings.Contains(text, `"`+subtest+`"`):
		return ""
	}
	if verb, rest, ok := strings.Cut(subtest, " "); ok && strings.Contains(text, `name: "`+rest+`", verb: "`+verb+`"`) {
		return ""
	}
	return "there is no such subtest"
}

func (f *testFinder) read(dir string) map[string]string {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || files == nil {
		f.t.Errorf("package %s has no tests: %v", dir, err)
	}
	tests := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = string(text[set.Position(fn.Pos()).Offset:set.Position(fn.End()).Offset])
			}
		}
	}
	return tests
}
