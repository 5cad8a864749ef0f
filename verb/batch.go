package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// A BatchItem is one write of a batch: the members of the verb's own request
// with op, the verb's name, and ref_alias, a name by which other items may refer
// to what this one makes. Exactly one of the requests is set.
type BatchItem struct {
	RefAlias  string
	Create    *CreateRequest
	Update    *UpdateRequest // base_content_hash may be absent where ref is an alias
	Supersede *SupersedeRequest
	Comment   *CommentRequest
	Signal    *SignalRequest
	Link      *LinkRequest
	Unlink    *UnlinkRequest
	Cite      *CiteRequest
}

// batchHead is what items have in common.
type batchHead struct {
	Op       string `json:"op"`
	RefAlias string `json:"ref_alias,omitempty"`
}

// The JSON of items.
type (
	batchCreate struct {
		batchHead
		CreateRequest
	}
	batchUpdate struct {
		batchHead
		UpdateRequest
		BaseContentHash *artifact.Hash `json:"base_content_hash,omitempty"`
	}
	batchSupersede struct {
		batchHead
		SupersedeRequest
	}
	batchComment struct {
		batchHead
		CommentRequest
	}
	batchSignal struct {
		batchHead
		SignalRequest
	}
	batchLink struct {
		batchHead
		LinkRequest
	}
	batchUnlink struct {
		Op string `json:"op"` // it makes nothing that an alias could name
		UnlinkRequest
	}
	batchCite struct {
		batchHead
		CiteRequest
	}
)

// A batchOp is a verb that a batch takes.
type batchOp struct {
	name   string
	fields []string // of its items
	decode func(raw []byte, i *BatchItem) error
	encode func(i *BatchItem) any // nil for an item of another op
}

func opOf[J any](name string, take func(*J, *BatchItem), give func(*BatchItem) *J) batchOp {
	c := newCodec[J](name)
	return batchOp{
		name: name, fields: slices.Collect(maps.Keys(c.schema.Properties)),
		decode: func(raw []byte, i *BatchItem) error {
			j := new(J)
			if err := c.decode(raw, j); err != nil {
				return err
			}
			take(j, i)
			return nil
		},
		encode: func(i *BatchItem) any {
			if j := give(i); j != nil {
				return j
			}
			return nil
		},
	}
}

// batchOps are the verbs that a batch takes.
var batchOps = []batchOp{
	opOf("create",
		func(j *batchCreate, i *BatchItem) { i.RefAlias, i.Create = j.RefAlias, &j.CreateRequest },
		func(i *BatchItem) *batchCreate {
			if i.Create == nil {
				return nil
			}
			return &batchCreate{batchHead{"create", i.RefAlias}, *i.Create}
		}),
	opOf("update",
		func(j *batchUpdate, i *BatchItem) {
			i.RefAlias, i.Update = j.RefAlias, &j.UpdateRequest
			if j.BaseContentHash != nil {
				i.Update.BaseContentHash = *j.BaseContentHash
			}
		},
		func(i *BatchItem) *batchUpdate {
			if i.Update == nil {
				return nil
			}
			j := &batchUpdate{batchHead: batchHead{"update", i.RefAlias}, UpdateRequest: *i.Update}
			if !i.Update.BaseContentHash.IsZero() {
				j.BaseContentHash = &i.Update.BaseContentHash
			}
			return j
		}),
	opOf("supersede",
		func(j *batchSupersede, i *BatchItem) { i.RefAlias, i.Supersede = j.RefAlias, &j.SupersedeRequest },
		func(i *BatchItem) *batchSupersede {
			if i.Supersede == nil {
				return nil
			}
			return &batchSupersede{batchHead{"supersede", i.RefAlias}, *i.Supersede}
		}),
	opOf("comment",
		func(j *batchComment, i *BatchItem) { i.RefAlias, i.Comment = j.RefAlias, &j.CommentRequest },
		func(i *BatchItem) *batchComment {
			if i.Comment == nil {
				return nil
			}
			return &batchComment{batchHead{"comment", i.RefAlias}, *i.Comment}
		}),
	opOf("signal",
		func(j *batchSignal, i *BatchItem) { i.RefAlias, i.Signal = j.RefAlias, &j.SignalRequest },
		func(i *BatchItem) *batchSignal {
			if i.Signal == nil {
				return nil
			}
			return &batchSignal{batchHead{"signal", i.RefAlias}, *i.Signal}
		}),
	opOf("link",
		func(j *batchLink, i *BatchItem) { i.RefAlias, i.Link = j.RefAlias, &j.LinkRequest },
		func(i *BatchItem) *batchLink {
			if i.Link == nil {
				return nil
			}
			return &batchLink{batchHead{"link", i.RefAlias}, *i.Link}
		}),
	opOf("unlink",
		func(j *batchUnlink, i *BatchItem) { i.Unlink = &j.UnlinkRequest },
		func(i *BatchItem) *batchUnlink {
			if i.Unlink == nil {
				return nil
			}
			return &batchUnlink{"unlink", *i.Unlink}
		}),
	opOf("cite",
		func(j *batchCite, i *BatchItem) { i.RefAlias, i.Cite = j.RefAlias, &j.CiteRequest },
		func(i *BatchItem) *batchCite {
			if i.Cite == nil {
				return nil
			}
			return &batchCite{batchHead{"cite", i.RefAlias}, *i.Cite}
		}),
}

// batchOpNames returns the names of the verbs that a batch takes.
func batchOpNames() []string {
	return []string{"create", "update", "supersede", "comment", "signal", "link", "unlink", "cite"}
}

// May refuses callers who could not use the item's verb on anything.
func (i *BatchItem) May(ctx context.Context) error {
	switch {
	case i.Create != nil:
		return mayCall(ctx, Create.Name, Write, Create.Needs)
	case i.Update != nil:
		return mayCall(ctx, Update.Name, Write, Update.Needs)
	case i.Supersede != nil:
		return mayCall(ctx, Supersede.Name, Write, Supersede.Needs)
	case i.Comment != nil:
		return mayCall(ctx, Comment.Name, Write, Comment.Needs)
	case i.Signal != nil:
		return mayCall(ctx, Signal.Name, Write, Signal.Needs)
	case i.Link != nil:
		return mayCall(ctx, Link.Name, Write, Link.Needs)
	case i.Unlink != nil:
		return mayCall(ctx, Unlink.Name, Write, Unlink.Needs)
	case i.Cite != nil:
		return mayCall(ctx, Cite.Name, Write, Cite.Needs)
	}
	return nil
}

// Options returns the options that the item's request has. They belong to the
// batch.
func (i *BatchItem) Options() WriteOptions {
	switch {
	case i.Create != nil:
		return i.Create.WriteOptions
	case i.Update != nil:
		return i.Update.WriteOptions
	case i.Supersede != nil:
		return i.Supersede.WriteOptions
	case i.Comment != nil:
		return i.Comment.WriteOptions
	case i.Signal != nil:
		return i.Signal.WriteOptions
	case i.Link != nil:
		return i.Link.WriteOptions
	case i.Unlink != nil:
		return i.Unlink.WriteOptions
	case i.Cite != nil:
		return i.Cite.WriteOptions
	}
	return WriteOptions{}
}

// An ItemRef is a ref that an item names, or an alias with its @, and where in the
// item it stands.
type ItemRef struct{ Path, Text string }

// Refs returns what the item names, what its links lead to and are backed by among
// it.
func (i *BatchItem) Refs() (refs []ItemRef) {
	switch {
	case i.Create != nil:
		return linkRefs("/links", i.Create.Links)
	case i.Update != nil:
		return []ItemRef{{"/ref", i.Update.Ref}}
	case i.Supersede != nil:
		refs = []ItemRef{{"/ref", i.Supersede.Ref}, {"/replacement_ref", i.Supersede.ReplacementRef}}
		if made := i.Supersede.Replacement; made != nil {
			refs = append(refs, linkRefs("/replacement/links", made.Links)...)
		}
	case i.Comment != nil:
		return []ItemRef{{"/ref", i.Comment.Ref}, {"/thread_parent", i.Comment.ThreadParent}}
	case i.Signal != nil:
		return []ItemRef{{"/ref", i.Signal.Ref}}
	case i.Link != nil:
		refs = []ItemRef{{"/from", i.Link.From}, {"/to", i.Link.To}}
		for n, text := range i.Link.EvidenceRefs {
			refs = append(refs, ItemRef{"/evidence_refs/" + strconv.Itoa(n), text})
		}
	case i.Unlink != nil:
		return []ItemRef{{"/ref", i.Unlink.Ref}, {"/from", i.Unlink.From}, {"/to", i.Unlink.To}}
	case i.Cite != nil:
		return []ItemRef{{"/ref", i.Cite.Ref}}
	}
	return refs
}

func linkRefs(path string, links []LinkSpec) (refs []ItemRef) {
	for i := range links {
		at := path + "/" + strconv.Itoa(i)
		refs = append(refs, ItemRef{at + "/to", links[i].To})
		for n, text := range links[i].EvidenceRefs {
			refs = append(refs, ItemRef{at + "/evidence_refs/" + strconv.Itoa(n), text})
		}
	}
	return refs
}

// UnmarshalJSON implements json.Unmarshaler. Its errors carry paths from the
// item on; the batch's codec places them.
func (i *BatchItem) UnmarshalJSON(raw []byte) error {
	var head struct {
		Op json.RawMessage `json:"op"`
	}
	if err := json.Unmarshal(raw, &head); err != nil || raw[0] == 'n' {
		return artifact.Invalid(artifact.Problem{Constraint: "type", Message: "an item is an object with op", Value: artifact.Received(string(raw))})
	}
	var name string
	_ = json.Unmarshal(head.Op, &name) // what is no text names no verb
	for _, op := range batchOps {
		if op.name == name {
			return op.decode(raw, i)
		}
	}
	return artifact.Invalid(withoutOp(raw, head.Op, name)...)
}

// withoutOp returns what is wrong with an item whose op names no verb: that, and the
// members that no verb's item has.
func withoutOp(raw, given []byte, name string) []artifact.Problem {
	names := batchOpNames()
	told := artifact.Problem{Path: "/op", Constraint: "enum", Message: "op is one of " + strings.Join(names, ", ")}
	if given == nil {
		told.Constraint, told.Message = "required", "op is required: one of "+strings.Join(names, ", ")
	} else {
		told.Value, told.Suggestion = artifact.Received(name), artifact.Suggest(name, names)
	}
	problems := []artifact.Problem{told}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return problems
	}
	fields := make(map[string]bool)
	for _, op := range batchOps {
		for _, field := range op.fields {
			fields[field] = true
		}
	}
	known := slices.Sorted(maps.Keys(fields))
	for _, field := range slices.Sorted(maps.Keys(members)) {
		if fields[field] {
			continue
		}
		p := artifact.Problem{Path: "/" + artifact.EscapePointer(field), Constraint: "unknown_field", Message: field + " is not a field here", Suggestion: artifact.Suggest(field, known)}
		var word string
		if given == nil && json.Unmarshal(members[field], &word) == nil && slices.Contains(names, word) {
			p.Message, p.Suggestion = field+" is not a field here: op names the verb", artifact.Received("op")
		}
		problems = append(problems, p)
	}
	return problems
}

// MarshalJSON implements json.Marshaler.
func (i BatchItem) MarshalJSON() ([]byte, error) {
	for _, op := range batchOps {
		item := op.encode(&i)
		if item == nil {
			continue
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(item)
		return b.Bytes(), err
	}
	return nil, errors.New("a batch item without a request")
}

// UnmarshalJSON implements json.Unmarshaler: it reads each item by its op's own
// rules and gathers the faults of all.
func (b *BatchRequest) UnmarshalJSON(raw []byte) error {
	type plain BatchRequest // without this method
	var parts struct {
		*plain
		Items []json.RawMessage `json:"items"`
	}
	parts.plain = (*plain)(b)
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	var problems []artifact.Problem
	b.Items = make([]BatchItem, len(parts.Items))
	for n, item := range parts.Items {
		err := b.Items[n].UnmarshalJSON(item)
		if err == nil {
			continue
		}
		e := artifact.AsError(err)
		if e.Code != artifact.CodeValidationFailed {
			return err
		}
		for _, p := range e.Problems {
			p.Path = "/items/" + strconv.Itoa(n) + p.Path
			problems = append(problems, p)
		}
	}
	if problems != nil {
		return artifact.Invalid(problems...)
	}
	return nil
}
