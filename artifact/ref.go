package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// HashSize is the size of a content hash, in bytes.
const HashSize = sha256.Size

// hashPrefix names the algorithm in a hash's text form.
const hashPrefix = "sha256:"

// A Hash is the SHA-256 of a version's canonical JSON (RFC 8785). Its text form
// is "sha256:" and 64 lower-case hex digits. The zero Hash names no version.
type Hash [HashSize]byte

// HashBytes returns the SHA-256 of b.
func HashBytes(b []byte) Hash { return sha256.Sum256(b) }

// hashText is how long the text form of a hash is.
const hashText = len(hashPrefix) + 2*HashSize

// String returns h's text form.
func (h Hash) String() string {
	var text [hashText]byte
	return string(h.append(text[:0]))
}

func (h *Hash) append(b []byte) []byte { return hex.AppendEncode(append(b, hashPrefix...), h[:]) }

// IsZero reports whether h names no version.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText implements encoding.TextMarshaler. The zero hash is empty text.
func (h Hash) MarshalText() ([]byte, error) {
	if h.IsZero() {
		return []byte{}, nil
	}
	return h.append(make([]byte, 0, hashText)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*h = Hash{}
		return nil
	}
	*h, err = ParseHash(string(text))
	return err
}

// ParseHash parses a hash's text form. Its error is an [*Error] with code
// [CodeValidationFailed].
func ParseHash(s string) (Hash, error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	var h Hash
	if !ok || len(digits) != 2*HashSize || strings.ToLower(digits) != digits {
		return Hash{}, hashError(s, "")
	}
	if _, err := hex.Decode(h[:], []byte(digits)); err != nil {
		return Hash{}, hashError(s, "")
	}
	if h.IsZero() {
		return Hash{}, Invalid(Problem{Constraint: "content_hash", Message: "64 zeros are the hash of no version: name the one that you read", Value: Received(s)})
	}
	return h, nil
}

// hashError says that s is no hash. A slip in how it is written is mended, after what
// stands before it.
func hashError(s, before string) *Error {
	p := Problem{
		Constraint: "content_hash",
		Message:    "a content hash is sha256: and 64 lower-case hex digits",
		Value:      Received(s),
	}
	if bare := hashPrefix + strings.ToLower(strings.TrimPrefix(s, hashPrefix)); bare != s {
		if _, err := ParseHash(bare); err == nil {
			p.Suggestion = Received(before + bare)
		}
	}
	return Invalid(p)
}

// Limits of a ref's parts, in bytes.
const (
	MaxTypeLength = 64
	MaxIDLength   = 256
)

// A Ref names an artifact, or one immutable version of it.
//
// Its text form is "type:id" for whatever version is current and
// "type:id@sha256:<64 hex>" for one version. The type is [a-z][a-z0-9_]{0,63};
// the id is everything after the first ":", 1 to 256 bytes of printable ASCII
// without space or "@". Whether an id may hold ":" is for the type's schema to
// say. Case is significant. Refs are comparable with == and usable as map keys.
// The zero Ref names nothing.
type Ref struct {
	Type string
	ID   string
	Hash Hash // zero for the current version
}

// ParseRef parses a ref's text form. Its error is an [*Error] with code
// [CodeValidationFailed].
func ParseRef(s string) (Ref, error) {
	name, hash, pinned := s, "", false
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		name, hash, pinned = s[:i], s[i+1:], true
	}
	typ, id, ok := strings.Cut(name, ":")
	if !ok || !ValidType(typ) || !ValidID(id) {
		return Ref{}, Invalid(Problem{
			Constraint: "ref",
			Message:    "a ref is type:id or type:id@sha256:<64 hex>",
			Value:      Received(s),
		})
	}
	ref := Ref{Type: typ, ID: id}
	if pinned {
		h, err := ParseHash(hash)
		if err != nil {
			return Ref{}, hashError(hash, name+"@")
		}
		ref.Hash = h
	}
	return ref, nil
}

// ValidType reports whether s has the form of a type's name.
func ValidType(s string) bool {
	if s == "" || len(s) > MaxTypeLength || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// ValidID reports whether s has the form of an id of any type.
func ValidID(s string) bool {
	if s == "" || len(s) > MaxIDLength {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '@' {
			return false
		}
	}
	return true
}

// IsPinned reports whether r names one immutable version.
func (r Ref) IsPinned() bool { return !r.Hash.IsZero() }

// Current returns r without its hash.
func (r Ref) Current() Ref { return Ref{Type: r.Type, ID: r.ID} }

// At returns r pinned to the version with hash h.
func (r Ref) At(h Hash) Ref { return Ref{Type: r.Type, ID: r.ID, Hash: h} }

// Compare orders refs by type, then id, then hash, bytewise. Rows are locked in
// this order.
func (r Ref) Compare(s Ref) int {
	if c := strings.Compare(r.Type, s.Type); c != 0 {
		return c
	}
	if c := strings.Compare(r.ID, s.ID); c != 0 {
		return c
	}
	return strings.Compare(string(r.Hash[:]), string(s.Hash[:]))
}

// String returns r's text form, which [ParseRef] reads back.
func (r Ref) String() string {
	if !r.IsPinned() {
		return r.Type + ":" + r.ID
	}
	return string(r.append(make([]byte, 0, r.size())))
}

// MarshalText implements encoding.TextMarshaler.
func (r Ref) MarshalText() ([]byte, error) { return r.append(make([]byte, 0, r.size())), nil }

func (r *Ref) size() int { return len(r.Type) + 1 + len(r.ID) + 1 + hashText }

func (r *Ref) append(b []byte) []byte {
	b = append(append(append(b, r.Type...), ':'), r.ID...)
	if r.IsPinned() {
		b = r.Hash.append(append(b, '@'))
	}
	return b
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Ref) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRef(string(text))
	return err
}
