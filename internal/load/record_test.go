package load

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/sample"
)

// FuzzParse checks that a line is either refused with faults that say where and
// why, or read such that what it becomes reads the same.
func FuzzParse(f *testing.F) {
	for line := range bytes.Lines(sample.JSONL) {
		if len(line) < 1000 {
			f.Add(bytes.TrimSpace(line))
		}
	}
	f.Add([]byte(`{"type":"signal","id":"s","title":"t","content":{"kind":"vote","value":1e3,"by":"é @","x":1},"links":[{"rel":"rates","to":"a:b"}]}`))
	f.Add([]byte(`{"type":1,"links":[[]],"content":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		line = bytes.Trim(line, " \t\r\n")
		r, problems := parse(line, true)
		for _, p := range problems {
			if p.Constraint == "" || p.Message == "" || p.Path != "" && p.Path[0] != '/' {
				t.Fatalf("parse(%q): problem %+v", line, p)
			}
		}
		lean, err := parseLinks(line)
		if problems != nil {
			return
		}
		if err != nil || lean.typ != r.typ || lean.id != r.id || len(lean.links) != len(r.links) {
			t.Fatalf("parseLinks(%q) = %+v, %v, parse has %+v", line, lean, err, r)
		}
		if r.typ == signalType && !artifact.ValidID(r.signal.Voter) {
			t.Fatalf("parse(%q): voter %q is no id", line, r.signal.Voter)
		}
		links := make([]map[string]string, len(r.links))
		for i, k := range r.links {
			links[i] = map[string]string{"rel": k.rel, "to": k.to}
		}
		again, err := json.Marshal(map[string]any{"type": r.typ, "id": r.id, "title": r.title, "content": r.content, "links": links})
		if err != nil {
			t.Fatal(err)
		}
		back, problems := parse(again, true)
		if problems != nil || back.ref() != r.ref() || back.title != r.title || !cmp.Equal(back.signal == nil, r.signal == nil) {
			t.Fatalf("parse(%q) = %+v, %v, want what %q gave", again, back, problems, line)
		}
	})
}

func TestVoter(t *testing.T) {
	tests := []struct{ by, want string }{
		{"annotator-7", "import:annotator-7"},
		{"a b@c%d", "import:a%20b%40c%25d"},
		{"é", "import:%C3%A9"},
	}
	for _, tt := range tests {
		if got := voter(tt.by); got != tt.want {
			t.Errorf("voter(%q) = %q, want %q", tt.by, got, tt.want)
		}
	}
	long := strings.Repeat("x", 300)
	if a, b := voter(long+"1"), voter(long+"2"); a == b || !artifact.ValidID(a) || !artifact.ValidID(b) {
		t.Errorf("voters of long names: %q and %q, want two ids", a, b)
	}
}
