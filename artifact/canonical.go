package artifact

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// Limits of an artifact's content.
const (
	MaxContentBytes = 1 << 20 // canonical bytes
	MaxContentDepth = 64      // nested objects and arrays, the content itself being one
)

// Canonical checks that raw is a content object and returns it in the canonical
// form of RFC 8785. The problems name every fault, with paths that begin with
// at, a JSON pointer; when there are any the result is nil.
func Canonical(raw []byte, at string) ([]byte, []Problem) {
	if problems := CheckJSON(raw, at, MaxContentDepth); problems != nil {
		return nil, problems
	}
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, []Problem{{Path: at, Constraint: "type", Message: "content is a JSON object", Value: receivedRaw(raw)}}
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, []Problem{{Path: at, Constraint: "json", Message: err.Error()}}
	}
	if len(canonical) > MaxContentBytes {
		return nil, []Problem{{
			Path:       at,
			Constraint: "max_bytes",
			Message:    "content is at most " + strconv.Itoa(MaxContentBytes) + " bytes in canonical form, not " + strconv.Itoa(len(canonical)),
		}}
	}
	return canonical, nil
}

// Recanonical puts around checked content what we add to it, in canonical form: it has
// no bound of its own, so that what wraps content of any size and depth passes.
func Recanonical(raw []byte) ([]byte, error) { return jcs.Transform(raw) }

// ContentHash returns the hash of a version: the SHA-256 of the canonical bytes
// of {"content":…,"state":…,"title":…,"type":…}. The content must be canonical
// already; an empty state hashes as null.
func ContentHash(typ, title, state string, content []byte) Hash {
	var b bytes.Buffer // all but the content, which may be large
	b.WriteString(`,"state":`)
	if state == "" {
		b.WriteString("null")
	} else {
		writeString(&b, state)
	}
	b.WriteString(`,"title":`)
	writeString(&b, title)
	b.WriteString(`,"type":`)
	writeString(&b, typ)
	b.WriteByte('}')
	d := sha256.New()
	d.Write([]byte(`{"content":`))
	d.Write(content)
	d.Write(b.Bytes())
	return Hash(d.Sum(nil))
}

// writeString writes s, which is valid UTF-8, as RFC 8785 writes strings.
func writeString(b *bytes.Buffer, s string) {
	const hexDigits = "0123456789abcdef"
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ':
			b.WriteByte(c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			b.WriteByte('\\')
			b.WriteByte("btn?fr"[c-'\b'])
		default:
			b.WriteString(`\u00`)
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	b.WriteByte('"')
}
