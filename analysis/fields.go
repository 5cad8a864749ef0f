package analysis

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// version is of the way in which texts become terms. Raising it makes every store
// index anew.
const version = 1

// A Rule says which texts of a type's artifacts are searched.
type Rule struct {
	typ    string
	fields []ruled
	id     string
}

type ruled struct {
	pointer string
	weight  Weight
}

// NewRule returns the rule of a schema.
func NewRule(s *artifact.Schema) *Rule {
	r := &Rule{typ: s.Type}
	if s.Search != nil {
		if s.Search.Title != "" {
			r.fields = append(r.fields, ruled{s.Search.Title, Title})
		}
		for i, pointer := range s.Search.Body {
			r.fields = append(r.fields, ruled{pointer, min(First+Weight(min(i, 9)), Rest)})
		}
	}
	h := fnv.New64a()
	for _, f := range r.fields {
		_, _ = h.Write(append([]byte(f.pointer), 0, byte(f.weight)))
	}
	r.id = strconv.Itoa(version) + "." + strconv.FormatUint(h.Sum64(), 36)
	return r
}

// ID tells rules apart: what was indexed under another one is to be indexed anew.
func (r *Rule) ID() string { return r.id }

// Fields returns the texts of an artifact: its title, and what the rule names, each
// text with its path.
func (r *Rule) Fields(title string, content []byte) []Field {
	fields := []Field{{Path: "/title", Weight: Title, Text: title}}
	var top map[string]json.RawMessage
	if len(r.fields) == 0 || json.Unmarshal(content, &top) != nil {
		return fields
	}
	for _, f := range r.fields {
		fields = collect(fields, f.pointer, "/content", top, f.weight)
	}
	return fields
}

// collect adds the texts at a pointer into an object.
func collect(fields []Field, pointer, path string, object map[string]json.RawMessage, w Weight) []Field {
	name, rest, deeper := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	raw, ok := object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	if !ok {
		return fields
	}
	path += "/" + name
	if deeper {
		var next map[string]json.RawMessage
		if json.Unmarshal(raw, &next) != nil {
			return fields
		}
		return collect(fields, "/"+rest, path, next, w)
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return fields
	}
	return texts(fields, path, v, w)
}

// texts adds all texts in a value, in order of their names.
func texts(fields []Field, path string, v any, w Weight) []Field {
	switch v := v.(type) {
	case string:
		if v != "" {
			fields = append(fields, Field{Path: path, Weight: w, Text: v})
		}
	case []any:
		for i, item := range v {
			fields = texts(fields, path+"/"+strconv.Itoa(i), item, w)
		}
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fields = texts(fields, path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), v[name], w)
		}
	}
	return fields
}

// Document returns what is indexed of an artifact. Its title, its id and its ref are
// names, and so is what papers are cited by.
func (r *Rule) Document(id, title string, content []byte) *Document {
	_, local, scoped := strings.Cut(id, "/")
	names := []string{title, id, r.typ + ":" + id}
	if scoped {
		names = append(names, local)
	}
	if before, _, ok := strings.Cut(title, ": "); ok && r.typ == "gene" {
		names = append(names, before)
	}
	if r.typ == "paper" {
		var cited struct{ PMID, DOI, PMCID string }
		if json.Unmarshal(content, &cited) == nil {
			if cited.PMID != "" {
				names = append(names, cited.PMID, "PMID "+cited.PMID)
			}
			if cited.DOI != "" {
				names = append(names, cited.DOI, "DOI "+cited.DOI, "https://doi.org/"+cited.DOI)
			}
			if cited.PMCID != "" {
				names = append(names, cited.PMCID)
			}
		}
	}
	return New(r.Fields(title, content), names...)
}
