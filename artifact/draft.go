package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// A draft is a JSON value that can be changed. It reads from its source until an
// operation goes into it; then it is open.
type draft struct {
	src      value
	kind     byte // '{' or '[' once open
	members  map[string]*draft
	elements []*draft
}

// open makes the members or elements drafts of their own.
func (d *draft) open() {
	if d.kind != 0 {
		return
	}
	c := d.src.items()
	switch d.src.kind() {
	case '{':
		d.kind, d.members = '{', map[string]*draft{}
		for !c.done() {
			key := c.element().text()
			d.members[key] = &draft{src: c.element()}
		}
	case '[':
		d.kind = '['
		for !c.done() {
			d.elements = append(d.elements, &draft{src: c.element()})
		}
	}
}

// at returns the value at a path, whose ancestors it opens.
func (d *draft) at(path []string) (*draft, error) {
	for n, token := range path {
		switch d.open(); d.kind {
		case '{':
			member, ok := d.members[token]
			if !ok {
				return nil, fmt.Errorf("%s is absent", pointerText(path[:n+1]))
			}
			d = member
		case '[':
			i, err := index(token, len(d.elements))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pointerText(path[:n+1]), err)
			}
			d = d.elements[i]
		default:
			return nil, fmt.Errorf("%s holds no values", pointerText(path[:n]))
		}
	}
	return d, nil
}

// equal compares with a canonical value, at the cost of that value's size.
func (d *draft) equal(v value) bool {
	if d.kind == 0 {
		return d.src.equal(v)
	}
	if d.kind != v.kind() {
		return false
	}
	n := 0
	for c := v.items(); !c.done(); n++ {
		var member *draft
		if d.kind == '{' {
			member = d.members[c.element().text()]
		} else if n < len(d.elements) {
			member = d.elements[n]
		}
		if member == nil || !member.equal(c.element()) {
			return false
		}
	}
	return n == len(d.members)+len(d.elements)
}

var errTooDeep = errors.New("it is nested too deep")

// write writes the draft in canonical form, of at most limit bytes in all.
func (d *draft) write(b *bytes.Buffer, depth, limit int) error {
	if depth > MaxContentDepth+1 {
		return errTooDeep
	}
	item := func(i int, key string, v *draft) error {
		if i > 0 {
			b.WriteByte(',')
		}
		if d.kind == '{' {
			writeString(b, key)
			b.WriteByte(':')
		}
		return v.write(b, depth+1, limit)
	}
	switch d.kind {
	case '{':
		keys := make([]string, 0, len(d.members))
		for key := range d.members {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, compareUTF16[string])
		b.WriteByte('{')
		for i, key := range keys {
			if err := item(i, key, d.members[key]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i, element := range d.elements {
			if err := item(i, "", element); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		b.Write(d.src.raw())
	}
	if b.Len() > limit {
		return fmt.Errorf("over %d bytes", limit)
	}
	return nil
}
