package artifact

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"sync"
)

// MaxSchemaBytes is the largest schema document, in canonical form.
const MaxSchemaBytes = 256 << 10

//go:embed metaschema.json
var metaDocument []byte

// meta checks schema documents. It is made when it is first needed.
var meta = sync.OnceValue(func() *Validator {
	v, err := NewValidator(metaDocument)
	if err != nil {
		panic(fmt.Sprintf("the meta-schema: %v", err))
	}
	return v
})

//go:embed schemas/*.json
var shipped embed.FS

// ShippedSchemas returns the schemas that the product ships, by type in order,
// with the document of each as it is stored. They are the program's own text: a
// fault in one is a panic.
func ShippedSchemas() []*Schema { return slices.Clone(shippedSchemas()) }

var shippedSchemas = sync.OnceValue(func() []*Schema {
	names, err := fs.Glob(shipped, "schemas/*.json")
	if err != nil {
		panic(err)
	}
	all := make([]*Schema, 0, len(names))
	for _, name := range names {
		raw, err := shipped.ReadFile(name)
		if err != nil {
			panic(err)
		}
		if name == "schemas/"+SchemaType+".json" {
			raw = withMeta(raw)
		}
		s, err := ParseSchema(raw)
		if err != nil {
			panic(fmt.Sprintf("shipped schema %s: %v", name, err))
		}
		all = append(all, s)
	}
	return all
})

// withMeta puts the meta-schema into the document of the type schema: what a
// schema document must be is said once.
func withMeta(raw []byte) []byte {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(raw, &document); err != nil {
		panic(err)
	}
	document["content_schema"] = metaDocument
	raw, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	return raw
}

// ParseSchema reads a schema document and compiles it. Its error is an [*Error]
// with code [CodeValidationFailed] that names every fault.
func ParseSchema(raw []byte) (*Schema, error) {
	s, problems := CheckSchema(raw, "")
	if problems != nil {
		return nil, Invalid(problems...)
	}
	return s, nil
}

// CheckSchema is [ParseSchema] with the faults of a document, whose paths begin
// with at.
func CheckSchema(raw []byte, at string) (*Schema, []Problem) {
	document, problems := Canonical(raw, at)
	if problems != nil {
		return nil, problems
	}
	if n := len(document); n > MaxSchemaBytes {
		return nil, []Problem{{Path: at, Constraint: "max_bytes", Message: fmt.Sprintf("a schema document is at most %d bytes, not %d", MaxSchemaBytes, n)}}
	}
	problems = meta().Validate(document, at)
	s := &Schema{document: document}
	d := json.NewDecoder(bytes.NewReader(document))
	if err := d.Decode(s); err != nil {
		if problems == nil {
			problems = []Problem{{Path: at, Constraint: "schema_document", Message: err.Error()}}
		}
		return nil, problems
	}
	told := make(map[string]bool, len(problems))
	for _, p := range problems {
		told[p.Path] = true
	}
	for _, p := range s.compile(at) {
		if !told[p.Path] { // the meta-schema says it already
			problems = append(problems, p)
		}
	}
	if len(problems) > maxCheckProblems {
		problems = problems[:maxCheckProblems]
	}
	if problems != nil {
		return nil, problems
	}
	return s, nil
}

// WithSchemaVersion returns a canonical schema document with another version.
func WithSchemaVersion(document []byte, version int) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, err
	}
	members["schema_version"] = fmt.Appendf(nil, "%d", version)
	raw, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	canonical, problems := Canonical(raw, "")
	if problems != nil {
		return nil, Invalid(problems...)
	}
	return canonical, nil
}

// SchemaVersionOf returns the version that a schema document names, 0 for none
// and -1 for what is no version.
func SchemaVersionOf(document []byte) int {
	var named struct {
		Version *json.Number `json:"schema_version"`
	}
	if err := json.Unmarshal(document, &named); err != nil {
		return -1
	}
	if named.Version == nil {
		return 0
	}
	if n, err := named.Version.Int64(); err == nil && n > 0 && n <= 1_000_000 {
		return int(n)
	}
	return -1
}
