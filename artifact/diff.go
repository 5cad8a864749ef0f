package artifact

import (
	"bytes"
	"fmt"
	"strconv"
)

// smallPatch is a patch that is no burden, however small the content, in bytes.
const smallPatch = 16 << 10

// Diff returns the JSON Patch (RFC 6902, in canonical form) that makes current of
// base, both as [Version.Document] writes them. When it would be longer than the
// current content, and over 16 KiB, it replaces the content as a whole. The error
// is for content that is not JSON.
func Diff(base, current Version) ([]byte, error) {
	b, err := newTree(base.Content)
	if err != nil {
		return nil, fmt.Errorf("content of base: %w", err)
	}
	c, err := newTree(current.Content)
	if err != nil {
		return nil, fmt.Errorf("content of current: %w", err)
	}
	d := differ{path: []byte("/content"), limit: max(smallPatch, len(c.raw))}
	d.out.WriteByte('[')
	if !d.value(b.root(), c.root()) {
		d.out.Truncate(1)
		d.op("replace", c.raw)
	}
	if base.State != current.State {
		var state bytes.Buffer
		writeState(&state, current.State)
		d.path = []byte("/state")
		d.op("replace", state.Bytes())
	}
	if base.Title != current.Title {
		var title bytes.Buffer
		writeString(&title, current.Title)
		d.path = []byte("/title")
		d.op("replace", title.Bytes())
	}
	d.out.WriteByte(']')
	return d.out.Bytes(), nil
}

// A differ writes operations as it walks two values side by side. Its methods
// return false once they are longer than the limit.
type differ struct {
	out   bytes.Buffer
	path  []byte // of the value at hand
	limit int
}

func (d *differ) op(name string, value []byte) bool {
	if d.out.Len() > 1 {
		d.out.WriteByte(',')
	}
	d.out.WriteString(`{"op":"` + name + `","path":`)
	writeString(&d.out, string(d.path))
	if value != nil {
		d.out.WriteString(`,"value":`)
		d.out.Write(value)
	}
	d.out.WriteByte('}')
	return d.out.Len() <= d.limit
}

func (d *differ) value(a, b value) bool {
	switch kind := b.kind(); {
	case a.equal(b):
		return true
	case a.kind() != kind:
	case kind == '{':
		return d.object(a, b)
	case kind == '[':
		return d.array(a, b)
	}
	return d.op("replace", b.raw())
}

func (d *differ) object(a, b value) bool {
	as, bs := a.items(), b.items()
	for {
		key := leastKey(as.key(), bs.key())
		if key == nil {
			return true
		}
		av, bv := as.take(key), bs.take(key)
		if av.equal(bv) {
			continue
		}
		var ok bool
		length := len(d.path)
		d.path = appendToken(d.path, key)
		switch {
		case !bv.present():
			ok = d.op("remove", nil)
		case !av.present():
			ok = d.op("add", bv.raw())
		default:
			ok = d.value(av, bv)
		}
		if d.path = d.path[:length]; !ok {
			return false
		}
	}
}

// array compares elements by their places between what the arrays begin and end
// with alike.
func (d *differ) array(a, b value) bool {
	as, bs := elements(a), elements(b)
	at := 0
	for at < len(as) && at < len(bs) && as[at].equal(bs[at]) {
		at++
	}
	as, bs = as[at:], bs[at:]
	for len(as) > 0 && len(bs) > 0 && as[len(as)-1].equal(bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	length := len(d.path)
	both := min(len(as), len(bs))
	for i := range max(len(as), len(bs)) {
		var ok bool
		d.path = strconv.AppendInt(append(d.path, '/'), int64(at+min(i, len(bs))), 10)
		switch {
		case i < both:
			ok = d.value(as[i], bs[i])
		case i < len(bs):
			ok = d.op("add", bs[i].raw())
		default: // each removal moves the next into its place
			ok = d.op("remove", nil)
		}
		if d.path = d.path[:length]; !ok {
			return false
		}
	}
	return true
}

// elements returns what an array holds.
func elements(v value) []value {
	var all []value
	for c := v.items(); !c.done(); {
		all = append(all, c.element())
	}
	return all
}
