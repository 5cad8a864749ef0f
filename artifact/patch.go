package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxPatchOperations is the longest JSON Patch.
const MaxPatchOperations = 1000

// maxDocumentBytes bounds a patched document: content with its title and state.
const maxDocumentBytes = MaxContentBytes + 8<<10

// Patch applies a JSON Patch to the version's [Version.Document]. The result
// holds content, a title and a state, which are otherwise unchecked. Problems'
// paths begin with at, a JSON pointer to the patch.
func (v Version) Patch(patch []byte, at string) (Version, []Problem) {
	patched, problems := ApplyPatch(v.Document(), patch, at)
	if problems != nil {
		if astray := strayPaths(patch, at); astray != nil {
			problems = astray
		}
		return Version{}, problems
	}
	t, ok := indexTree(patched)
	if !ok {
		return Version{}, []Problem{{Path: at, Constraint: "json", Message: "the patched document is not JSON"}}
	}
	out, wrong := Version{}, t.root().kind() != '{'
	for c := t.root().items(); !wrong && !c.done(); {
		switch name := c.element().text(); name {
		case "content":
			content := c.element()
			out.Content, wrong = content.raw(), content.kind() != '{'
		case "title":
			title := c.element()
			if wrong = title.kind() != '"'; !wrong {
				out.Title = title.text()
			}
		case "state":
			switch state := c.element(); state.kind() {
			case '"':
				out.State = state.text()
			case 'n':
			default:
				wrong = true
			}
		default:
			wrong = true
		}
	}
	if wrong || out.Content == nil {
		if astray := strayPaths(patch, at); astray != nil {
			return Version{}, astray
		}
		return Version{}, []Problem{{Path: at, Constraint: "json_patch", Message: "the patched document is {content, state, title}: an object, a text or null, a text"}}
	}
	return out, nil
}

// strayPaths are problems of a patch that is well formed but written as if it were
// of the content alone.
func strayPaths(patch []byte, at string) (problems []Problem) {
	var ops []struct{ Path, From string }
	if json.Unmarshal(patch, &ops) != nil {
		return nil
	}
	for i, op := range ops {
		for member, path := range map[string]string{"path": op.Path, "from": op.From} {
			tokens, err := ParsePointer(path)
			if err == nil && len(tokens) > 0 && !slices.Contains([]string{"content", "state", "title"}, tokens[0]) {
				problems = append(problems, Problem{
					Path: at + "/" + strconv.Itoa(i) + "/" + member, Constraint: "json_patch",
					Message: "a path begins with /content, /state or /title", Value: Received(path), Suggestion: Received("/content" + path),
				})
			}
		}
	}
	return problems
}

// ApplyPatch applies a JSON Patch (RFC 6902) to a JSON document and returns the
// result in canonical form. Each operation that is malformed is a problem, else
// the first that does not apply; their paths begin with at, a JSON pointer to the
// patch. Beyond the RFC, the whole document is not removed, nor a value copied
// into itself. Operations are at most [MaxPatchOperations]; what they copy, and
// the result, are each little more than [MaxContentBytes].
func ApplyPatch(doc, patch []byte, at string) ([]byte, []Problem) {
	refuse := func(constraint, message string) []Problem {
		return []Problem{{Path: at, Constraint: constraint, Message: message}}
	}
	if problems := CheckJSON(patch, at, MaxContentDepth+3); problems != nil { // array, operation, document
		return nil, problems
	}
	p, err := newTree(patch)
	if err != nil {
		return nil, refuse("json", err.Error())
	}
	d, err := newTree(doc)
	if err != nil {
		return nil, refuse("json", "the document that is patched: "+err.Error())
	}
	ops, problems := parsePatch(p.root(), at)
	if problems != nil {
		return nil, problems
	}
	e := editor{root: &draft{src: d.root()}}
	for i := range ops {
		if err := e.apply(&ops[i]); err != nil {
			return nil, []Problem{{Path: at + "/" + strconv.Itoa(i), Constraint: ops[i].constraint(), Message: err.Error()}}
		}
	}
	var out bytes.Buffer
	out.Grow(len(d.raw) + len(p.raw))
	if err := e.root.write(&out, 0, maxDocumentBytes); err != nil {
		return nil, refuse("max_bytes", "the result is too large: "+err.Error())
	}
	return out.Bytes(), nil
}

// An operation is one step of a patch.
type operation struct {
	op         string
	path, from []string // unescaped reference tokens
	value      value    // absent when the operation takes none
}

// constraint names the rule that is broken when the operation does not apply.
func (o *operation) constraint() string {
	if o.op == "test" {
		return "patch_test"
	}
	return "json_patch"
}

func parsePatch(patch value, at string) (ops []operation, problems []Problem) {
	if patch.kind() != '[' {
		return nil, []Problem{{Path: at, Constraint: "json_patch", Message: "a patch is an array of operations (RFC 6902)"}}
	}
	for c := patch.items(); !c.done(); {
		if len(ops) == MaxPatchOperations {
			return nil, []Problem{{Path: at, Constraint: "max_items", Message: "a patch has at most " + strconv.Itoa(MaxPatchOperations) + " operations"}}
		}
		o, faults := parseOperation(c.element(), at+"/"+strconv.Itoa(len(ops)))
		ops, problems = append(ops, o), append(problems, faults...)
		if len(problems) >= maxCheckProblems {
			break
		}
	}
	return ops, problems
}

func parseOperation(v value, at string) (o operation, problems []Problem) {
	note := func(member, message string) {
		problems = append(problems, Problem{Path: at + member, Constraint: "json_patch", Message: message})
	}
	if v.kind() != '{' {
		note("", "an operation is an object")
		return o, problems
	}
	members := map[string]value{}
	for c := v.items(); !c.done(); {
		name := c.element().text()
		members[name] = c.element()
	}
	pointer := func(name string) []string {
		p := members[name]
		if p.kind() != '"' {
			note("/"+name, name+" is a JSON pointer")
			return nil
		}
		tokens, err := ParsePointer(p.text())
		if err != nil {
			note("/"+name, err.Error())
		}
		return tokens
	}
	if op := members["op"]; op.kind() == '"' {
		o.op = op.text()
	}
	switch o.op {
	case "add", "replace", "test":
		if o.value = members["value"]; !o.value.present() {
			note("/value", "the operation "+o.op+" has a value")
		}
	case "move", "copy":
		o.from = pointer("from")
	case "remove":
	default:
		note("/op", "an operation is add, remove, replace, move, copy or test")
		return o, problems
	}
	o.path = pointer("path")
	if problems == nil && o.from != nil && len(o.from) < len(o.path) && slices.Equal(o.from, o.path[:len(o.from)]) {
		note("/path", "nothing is put into itself")
	}
	return o, problems
}

// ParsePointer splits a JSON pointer (RFC 6901). The pointer to the whole gives
// an empty slice, not nil.
func ParsePointer(s string) ([]string, error) {
	if s == "" {
		return []string{}, nil
	}
	if s[0] != '/' {
		return nil, errors.New("a JSON pointer is empty or begins with /")
	}
	tokens := strings.Split(s[1:], "/")
	for i, token := range tokens {
		for rest := token; ; {
			_, after, escaped := strings.Cut(rest, "~")
			if !escaped {
				break
			}
			if after == "" || after[0] != '0' && after[0] != '1' {
				return nil, errors.New("in a JSON pointer ~ stands as ~0 and / as ~1")
			}
			rest = after[1:]
		}
		tokens[i] = pointerUnescapes.Replace(token)
	}
	return tokens, nil
}

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// An editor applies operations to a document.
type editor struct {
	root   *draft
	copied int // bytes
}

func (e *editor) apply(o *operation) error {
	switch o.op {
	case "add":
		return e.add(o.path, &draft{src: o.value})
	case "remove":
		_, err := e.remove(o.path)
		return err
	case "replace":
		old, err := e.root.at(o.path)
		if err == nil {
			*old = draft{src: o.value}
		}
		return err
	case "move":
		if slices.Equal(o.from, o.path) {
			_, err := e.root.at(o.path)
			return err
		}
		moved, err := e.remove(o.from)
		if err != nil {
			return err
		}
		return e.add(o.path, moved)
	case "copy":
		source, err := e.root.at(o.from)
		if err != nil {
			return err
		}
		twin, err := e.copy(source)
		if err != nil {
			return err
		}
		return e.add(o.path, twin)
	default: // test
		found, err := e.root.at(o.path)
		if err == nil && !found.equal(o.value) {
			err = fmt.Errorf("the value at %s is another", pointerText(o.path))
		}
		return err
	}
}

// copy returns a copy of a draft, unless the copies become too large together.
func (e *editor) copy(source *draft) (*draft, error) {
	if source.kind == 0 { // what is not open is never changed, so it can be shared
		if e.copied += len(source.src.raw()); e.copied > MaxContentBytes {
			return nil, errors.New("the operations copy too much")
		}
		return &draft{src: source.src}, nil
	}
	var b bytes.Buffer
	if err := source.write(&b, 0, MaxContentBytes-e.copied); err != nil {
		return nil, fmt.Errorf("the operations copy too much: %w", err)
	}
	e.copied += b.Len()
	t, ok := indexTree(b.Bytes())
	if !ok {
		return nil, errors.New("the value cannot be copied")
	}
	return &draft{src: t.root()}, nil
}

func (e *editor) add(path []string, d *draft) error {
	if len(path) == 0 {
		e.root = d
		return nil
	}
	parent, err := e.root.at(path[:len(path)-1])
	if err != nil {
		return err
	}
	last := path[len(path)-1]
	switch parent.open(); parent.kind {
	case '{':
		parent.members[last] = d
	case '[':
		i := len(parent.elements)
		if last != "-" {
			if i, err = index(last, i+1); err != nil {
				return fmt.Errorf("%s: %w", pointerText(path), err)
			}
		}
		parent.elements = slices.Insert(parent.elements, i, d)
	default:
		return fmt.Errorf("%s holds no values", pointerText(path[:len(path)-1]))
	}
	return nil
}

func (e *editor) remove(path []string) (*draft, error) {
	if len(path) == 0 {
		return nil, errors.New("the whole document is not removed")
	}
	removed, err := e.root.at(path)
	if err != nil {
		return nil, err
	}
	parent, err := e.root.at(path[:len(path)-1])
	if err != nil {
		return nil, err
	}
	last := path[len(path)-1]
	if parent.kind == '{' {
		delete(parent.members, last)
		return removed, nil
	}
	i, err := index(last, len(parent.elements))
	if err != nil {
		return nil, err
	}
	parent.elements = slices.Delete(parent.elements, i, i+1)
	return removed, nil
}

// index reads an array index below n: digits without a leading zero.
func index(token string, n int) (int, error) {
	i, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(i) != token || i < 0 {
		return 0, fmt.Errorf("%q is no index of an array", token)
	}
	if i >= n {
		return 0, fmt.Errorf("index %d is past the end", i)
	}
	return i, nil
}

// pointerText writes a pointer into a message, cut to a bearable size.
func pointerText(path []string) string {
	if len(path) == 0 {
		return "the whole"
	}
	var b strings.Builder
	for _, token := range path {
		if b.WriteByte('/'); b.Len()+len(token) > maxReceived {
			b.WriteString("…")
			break
		}
		b.WriteString(EscapePointer(token))
	}
	return b.String()
}
