package verb

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// A BatchItem is one write of a batch: the members of the verb's own request
// with op, the verb's name, and ref_alias, a name by which later items may refer
// to what this one writes. Exactly one of the requests is set.
type BatchItem struct {
	RefAlias string
	Create   *CreateRequest
	Link     *LinkRequest
	Signal   *SignalRequest
}

// batchOps are the verbs that a batch takes.
var batchOps = []string{"create", "link", "signal"}

// batchHead is what all items have in common.
type batchHead struct {
	Op       string `json:"op" jsonschema:"the verb: create, link or signal"`
	RefAlias string `json:"ref_alias,omitempty" jsonschema:"name of what this item writes, for later items to use as @name"`
}

type (
	batchCreate struct {
		batchHead
		CreateRequest
	}
	batchLink struct {
		batchHead
		LinkRequest
	}
	batchSignal struct {
		batchHead
		SignalRequest
	}
)

var (
	createItem = newCodec[batchCreate]("create")
	linkItem   = newCodec[batchLink]("link")
	signalItem = newCodec[batchSignal]("signal")
)

// UnmarshalJSON implements json.Unmarshaler. Its errors carry paths from the
// item on; the batch's codec places them.
func (i *BatchItem) UnmarshalJSON(raw []byte) error {
	var head struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return artifact.Invalid(artifact.Problem{Constraint: "type", Message: "an item is an object with op"})
	}
	switch head.Op {
	case "create":
		var it batchCreate
		if err := createItem.decode(raw, &it); err != nil {
			return err
		}
		i.RefAlias, i.Create = it.RefAlias, &it.CreateRequest
	case "link":
		var it batchLink
		if err := linkItem.decode(raw, &it); err != nil {
			return err
		}
		i.RefAlias, i.Link = it.RefAlias, &it.LinkRequest
	case "signal":
		var it batchSignal
		if err := signalItem.decode(raw, &it); err != nil {
			return err
		}
		i.RefAlias, i.Signal = it.RefAlias, &it.SignalRequest
	default:
		return artifact.Invalid(artifact.Problem{
			Path: "/op", Constraint: "enum", Value: artifact.Received(head.Op),
			Message: "op is one of " + strings.Join(batchOps, ", "),
		})
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (i BatchItem) MarshalJSON() ([]byte, error) {
	var item any
	switch {
	case i.Create != nil:
		item = batchCreate{batchHead{"create", i.RefAlias}, *i.Create}
	case i.Link != nil:
		item = batchLink{batchHead{"link", i.RefAlias}, *i.Link}
	case i.Signal != nil:
		item = batchSignal{batchHead{"signal", i.RefAlias}, *i.Signal}
	default:
		return nil, errors.New("a batch item without a request")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(item)
	return b.Bytes(), err
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
