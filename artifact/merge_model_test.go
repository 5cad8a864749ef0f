package artifact_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/scidex-ai/substrate/artifact"
)

// A maker makes documents, the same ones for a seed.
type maker struct{ *rand.Rand }

func newMaker(seed uint64) maker { return maker{rand.New(rand.NewPCG(seed, 7))} }

func (g maker) value(depth int) any {
	switch n := g.IntN(10); {
	case n < 3 && depth > 0:
		o := map[string]any{}
		for range g.IntN(4) {
			o[g.key()] = g.value(depth - 1)
		}
		return o
	case n < 5 && depth > 0:
		a := []any{}
		for range g.IntN(4) {
			a = append(a, g.value(depth-1))
		}
		return a
	case n < 6:
		return nil
	case n < 7:
		return g.IntN(2) == 0
	case n < 8:
		return float64(g.IntN(3)) / 2
	}
	return g.key()
}

func (g maker) key() string {
	keys := []string{"a", "b", "c", "~/", "\"\\\n", "é", "😀", "\ufb33", "", "\x01"}
	return keys[g.IntN(len(keys))]
}

func (g maker) object() map[string]any {
	o := map[string]any{}
	for range 1 + g.IntN(6) {
		o[g.key()] = g.value(3)
	}
	return o
}

// edit returns a copy of v with some changes.
func (g maker) edit(v any) any {
	switch v := v.(type) {
	case map[string]any:
		o := maps.Clone(v)
		for _, k := range slices.Sorted(maps.Keys(o)) {
			switch n := g.IntN(12); {
			case n < 4:
				o[k] = g.edit(o[k])
			case n < 5:
				delete(o, k)
			}
		}
		if g.IntN(4) == 0 {
			o[g.key()] = g.value(2)
		}
		return o
	case []any:
		a := slices.Clone(v)
		if g.IntN(2) == 0 {
			for range 1 + g.IntN(2) {
				a = append(a, g.value(1))
			}
		} else if len(a) > 0 {
			i := g.IntN(len(a))
			a[i] = g.edit(a[i])
		}
		return a
	}
	return g.value(1)
}

func (g maker) version(content any) artifact.Version {
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		panic(err)
	}
	states := []string{"", "draft", "open"}
	return artifact.Version{Content: canonical, State: states[g.IntN(3)], Title: []string{"T", "U"}[g.IntN(2)]}
}

// triple returns three versions, the last two often edits of the first.
func (g maker) triple() (b, o, t artifact.Version) {
	base := g.object()
	b = g.version(base)
	return b, g.version(g.edit(base)), g.version(g.edit(base))
}

// touched lists what x changes in b: pointers with the new value, or absent.
type absent struct{}

func touched(at string, b, x any, out map[string]any) {
	bo, isB := b.(map[string]any)
	xo, isX := x.(map[string]any)
	if !isB || !isX {
		if !reflect.DeepEqual(b, x) {
			out[at] = x
		}
		return
	}
	for k := range bo {
		if _, ok := xo[k]; !ok {
			out[at+"/"+artifact.EscapePointer(k)] = absent{}
		}
	}
	for k, v := range xo {
		p := at + "/" + artifact.EscapePointer(k)
		if old, ok := bo[k]; ok {
			touched(p, old, v, out)
		} else {
			out[p] = v
		}
	}
}

// set puts v at a pointer into an object.
func set(o map[string]any, pointer string, v any) {
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if i < len(tokens)-1 {
			o = o[token].(map[string]any)
			continue
		}
		if v == (absent{}) {
			delete(o, token)
		} else {
			o[token] = v
		}
	}
}

func value(pointer string, v any) any {
	for token := range strings.SplitSeq(pointer[1:], "/") {
		o, ok := v.(map[string]any)
		if !ok {
			return absent{}
		}
		if v, ok = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]; !ok {
			return absent{}
		}
	}
	return v
}

// joined unites what both sides append to an array, if that is what they do.
func joined(b, o, x any) (any, bool) {
	ba, isB := b.([]any)
	oa, isO := o.([]any)
	xa, isX := x.([]any)
	n := len(ba)
	if !isB || !isO || !isX || len(oa) <= n || len(xa) <= n || !reflect.DeepEqual(oa[:n:n], ba[:n:n]) || !reflect.DeepEqual(xa[:n:n], ba[:n:n]) {
		return nil, false
	}
	out, left := slices.Clone(oa), slices.Clone(oa[n:])
	for _, v := range xa[n:] {
		if i := slices.IndexFunc(left, func(w any) bool { return reflect.DeepEqual(v, w) }); i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else {
			out = append(out, v)
		}
	}
	return out, true
}

// TestMergeAppliesBothSides compares with a plain merge: two sets of changed
// pointers, every pair of them compared, and both sets applied to the base.
func TestMergeAppliesBothSides(t *testing.T) {
	clean := 0
	for seed := range uint64(20_000) {
		b, o, x := newMaker(seed).triple()
		o.State, o.Title, x.State, x.Title = b.State, b.Title, b.State, b.Title
		var base, ours, theirs map[string]any
		for raw, v := range map[*artifact.Version]*map[string]any{&b: &base, &o: &ours, &x: &theirs} {
			if err := json.Unmarshal(raw.Content, v); err != nil {
				t.Fatal(err)
			}
		}
		left, right := map[string]any{}, map[string]any{}
		touched("", base, ours, left)
		touched("", base, theirs, right)
		conflicts := map[string]bool{}
		for p, v := range left {
			for q, w := range right {
				union, appended := joined(value(p, base), v, w)
				switch {
				case p == q && reflect.DeepEqual(v, w):
				case p == q && appended:
					left[p], right[p] = union, union
				case p == q || strings.HasPrefix(q, p+"/"):
					conflicts["/content"+p] = true
				case strings.HasPrefix(p, q+"/"):
					conflicts["/content"+q] = true
				}
			}
		}
		m := merge(t, b, o, x)
		if want := slices.Sorted(maps.Keys(conflicts)); !slices.Equal(m.Conflicts, want) {
			t.Fatalf("seed %d: Merge(%s, %s, %s) conflicts in %q, want %q", seed, b.Content, o.Content, x.Content, m.Conflicts, want)
		}
		if !m.Clean() {
			continue
		}
		clean++
		for _, side := range []map[string]any{left, right} {
			for p, v := range side {
				set(base, p, v)
			}
		}
		var got map[string]any
		if err := json.Unmarshal(m.Version.Content, &got); err != nil || !reflect.DeepEqual(got, base) {
			t.Fatalf("seed %d: Merge(%s, %s, %s) = %s, want %v", seed, b.Content, o.Content, x.Content, m.Version.Content, base)
		}
	}
	if clean < 2000 {
		t.Errorf("only %d merges were clean", clean)
	}
}
