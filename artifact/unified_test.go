package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUnified(t *testing.T) {
	a := Version{Title: "T", State: "proposed", Content: []byte(`{"authors":["A","B"],"mechanism":"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight","year":"1991"}`)}
	b := Version{Title: "T", State: "proposed", Content: []byte(`{"authors":["A","B","é"],"mechanism":"one\ntwo\n3\nfour\nfive\nsix\nseven\neight","year":"1991"}`)}
	want := `--- x:a
+++ x:b
@@ -1,11 +1,11 @@
 title: T
 state: proposed
 content: {
-  "authors": ["A","B"]
+  "authors": ["A","B","é"]
   "mechanism": |
     one
     two
-    three
+    3
     four
     five
     six
`
	if got, err := Unified("x:a", a, "x:b", b); err != nil || got != want {
		t.Errorf("Unified = %v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := Unified("x:a", a, "x:b", a); err != nil || got != "" {
		t.Errorf("Unified of what is alike = %q, %v", got, err)
	}
}

// TestUnifiedApplies gives random differences to patch(1), which makes one version
// of the other.
func TestUnifiedApplies(t *testing.T) {
	patch, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("there is no patch(1)")
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func() Version {
		members := map[string]any{}
		for i := range r.IntN(5) {
			var lines []string
			for range r.IntN(40) {
				lines = append(lines, fmt.Sprint("line ", r.IntN(4)))
			}
			members[fmt.Sprint("m", i)] = strings.Join(lines, "\n")
		}
		raw, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		return Version{Title: fmt.Sprint("T", r.IntN(2)), Content: raw}
	}
	write := func(v Version) string {
		lines, err := layOut(v)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n") + "\n"
	}
	for range 60 {
		a, b := text(), text()
		diff, err := Unified("a", a, "b", b)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "a")
		if err := os.WriteFile(file, []byte(write(a)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), patch, "--fuzz=0", "--quiet", file)
		cmd.Stdin = strings.NewReader(diff)
		if out, err := cmd.CombinedOutput(); err != nil && diff != "" {
			t.Fatalf("patch: %v: %s\n%s", err, out, diff)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != write(b) {
			t.Fatalf("patched: %v\n%s\nwant\n%s\nby\n%s", err, got, write(b), diff)
		}
	}
}

// TestUnifiedIsBounded compares contents of a megabyte in short time, or says what
// is too much.
func TestUnifiedIsBounded(t *testing.T) {
	lines := func(seed uint64, n int) []byte {
		r := rand.New(rand.NewPCG(seed, 0))
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%d\n", r.IntN(1000))
		}
		raw, err := json.Marshal(map[string]string{"markdown": b.String()})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	deep := []byte(`{"a":` + strings.Repeat("[", 60) + strings.Repeat("1,", 1<<18) + "1" + strings.Repeat("]", 60) + `}`)
	for name, c := range map[string]struct {
		a, b    []byte
		refused bool
	}{
		"lines that repeat":           {lines(1, 300_000), lines(2, 300_000), false},
		"a line of a megabyte":        {[]byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`), []byte(`{"a":"` + strings.Repeat("y", 1<<19) + `"}`), false},
		"more than is told":           {[]byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`), []byte(`{"a":"` + strings.Repeat("y", 1<<20) + `"}`), true},
		"more than is laid out":       {deep, []byte(`{}`), true},
		"alike but for the last line": {lines(3, 900_000), append(lines(3, 900_000)[:900_000], `"}`...), false},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Unified("a", Version{Content: c.a}, "b", Version{Content: c.b})
			var e *Error
			if refused := errors.As(err, &e) && e.Reason == ReasonResponseTooLarge; refused != c.refused || err != nil && !refused {
				t.Errorf("error = %v, want one: %t", err, c.refused)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}
