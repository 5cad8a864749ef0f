package hub

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

var validAlias = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// items are a batch's items as ops.
type items struct {
	hub      *Hub
	caller   *verb.Caller
	imported bool
	ops      []op // by item
	names    itemNames
	aliases  map[string]aliased // with @
	contents []*checkedContent  // of items that create; nil for others
}

// An aliased is what is known of the thing that an alias names, before the
// transaction.
type aliased struct {
	typ  string
	ref  artifact.Ref // zero for one that is named when it is made
	link linkMaker    // nil for what is no link
	edge edgeMaker    // nil for what is neither a link nor a signal
}

// newItems checks all of a batch that can be checked without the database.
func newItems(ctx context.Context, h *Hub, c *verb.Caller, in *verb.BatchRequest) *items {
	b := &items{
		hub: h, caller: c, imported: in.Import, ops: make([]op, len(in.Items)), aliases: make(map[string]aliased),
		names: itemNames{own: make([]string, len(in.Items)), maker: make(map[string]int), named: make([][]naming, len(in.Items))},
	}
	b.checkContents(in)
	for i := range in.Items {
		item := &in.Items[i]
		var o op
		err := b.may(ctx, item)
		if err == nil {
			err = b.alias(i, item.RefAlias)
		}
		if err == nil {
			o, err = b.op(i, item)
		}
		if err == nil {
			b.name(i, o)
		} else {
			o = &refusedOp{err}
		}
		b.ops[i] = o
	}
	b.tie(in)
	b.makeWords()
	return b
}

// checkContents checks the contents of new artifacts: with their words, it is most
// of the work that needs no database, and each by itself.
func (b *items) checkContents(in *verb.BatchRequest) {
	b.contents = make([]*checkedContent, len(in.Items))
	sideBySide(len(in.Items), func(i int) {
		if create := in.Items[i].Create; create != nil {
			if schema := b.hub.schemas.get(create.Type); schema != nil {
				b.contents[i] = checkContent(schema, create.Content, b.imported)
			}
		}
	})
}

// makeWords makes the words of new artifacts.
func (b *items) makeWords() {
	sideBySide(len(b.ops), func(i int) {
		if o, ok := b.ops[i].(*createOp); ok {
			o.makeWords()
		}
	})
}

// sideBySide runs f for each of n numbers, on as many processors as there are. What
// panics is left out: it is done again with the rest of its item, where only its own
// request fails.
func sideBySide(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			defer func() { _ = recover() }()
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}

// may refuses an item that its own verb would refuse the caller.
func (b *items) may(ctx context.Context, item *verb.BatchItem) error {
	if b.imported { // by an admin
		return nil
	}
	return item.May(ctx)
}

// op makes the op of an item.
func (b *items) op(i int, item *verb.BatchItem) (op, error) {
	switch o := item.Options(); {
	case o.IdempotencyKey != "":
		return nil, artifact.Invalid(artifact.Problem{Path: "/idempotency_key", Constraint: "batch_option", Message: "the key belongs to the batch"})
	case o.DryRun:
		return nil, artifact.Invalid(artifact.Problem{Path: "/dry_run", Constraint: "batch_option", Message: "dry_run belongs to the batch"})
	}
	if ref := changedBy(item); namesEdge(ref) || isEdge(b.aliases[ref].typ) {
		return &fixedOp{ref: ref, of: b.aliases[ref].edge}, nil
	}
	switch {
	case item.Create != nil:
		return b.hub.newCreate(b.caller, item.Create, verb.Batch.Name, b.imported, b.contents[i])
	case item.Link != nil:
		o, problems := b.hub.newLink(item.Link, "")
		if problems != nil {
			return nil, artifact.Invalid(problems...)
		}
		o.requestID = b.caller.RequestID
		return o, nil
	case item.Signal != nil:
		return b.hub.newSignal(b.caller, item.Signal, b.imported)
	case b.imported:
		return nil, artifact.Invalid(artifact.Problem{Path: "/op", Constraint: "import", Message: "an import brings artifacts, links and signals, and changes nothing"})
	}
	return b.laterOp(item)
}

// changedBy returns the ref of what an item would change, or signal.
func changedBy(item *verb.BatchItem) string {
	switch {
	case item.Update != nil:
		return item.Update.Ref
	case item.Supersede != nil:
		return item.Supersede.Ref
	case item.Signal != nil:
		return item.Signal.Ref
	}
	return ""
}

// laterOp makes the op of an item that changes or answers what is there.
func (b *items) laterOp(item *verb.BatchItem) (op, error) {
	switch {
	case item.Update != nil:
		in := *item.Update // whose patch is put in canonical form
		of, known := b.aliases[in.Ref]
		if strings.HasPrefix(in.Ref, "@") && !known {
			return nil, at(unknownAlias(in.Ref), "/ref")
		}
		o, err := b.hub.newUpdate(b.caller, &in, of.typ)
		if err == nil && o.ref.Type == artifact.SchemaType && len(b.ops) > 1 {
			err = artifact.Invalid(artifact.Problem{Path: "/ref", Constraint: "alone", Message: "a type is changed by a request of its own"})
		}
		if err == nil {
			o.ref, o.provenance.Verb = b.meant(in.Ref, o.ref), verb.Batch.Name
		}
		return o, err
	case item.Supersede != nil:
		o, err := b.hub.newSupersede(b.caller, item.Supersede, b.aliases[item.Supersede.Ref].typ)
		if err != nil {
			return nil, err
		}
		o.ref, o.replacement = b.meant(o.in.Ref, o.ref), b.meant(o.in.ReplacementRef, o.replacement)
		if o.make != nil {
			o.make.provenance.Verb = verb.Batch.Name
		}
		return o, nil
	case item.Comment != nil:
		o, err := b.hub.newComment(b.caller, item.Comment)
		if err == nil {
			o.provenance.Verb = verb.Batch.Name
		}
		return o, err
	case item.Unlink != nil:
		o, err := newUnlink(b.caller, item.Unlink)
		if err == nil {
			o.of = b.aliases[item.Unlink.Ref].link
		}
		return o, err
	case item.Cite != nil:
		return b.hub.newCite(b.caller, item.Cite)
	}
	return nil, artifact.Invalid(artifact.Problem{Constraint: "required", Path: "/op", Message: "an item has an op"})
}

// alias notes that an item has an alias, whatever becomes of it.
func (b *items) alias(i int, alias string) error {
	if alias == "" {
		return nil
	}
	if _, taken := b.names.maker["@"+alias]; taken || !validAlias.MatchString(alias) {
		return artifact.Invalid(artifact.Problem{
			Path: "/ref_alias", Constraint: "ref_alias", Value: artifact.Received(alias),
			Message: "an alias is 1 to 64 letters, digits, - and _, and stands once in a batch",
		})
	}
	b.names.own[i], b.names.maker["@"+alias] = alias, i
	return nil
}

// name notes what an item makes.
func (b *items) name(i int, o op) {
	var made aliased
	switch o := o.(type) {
	case *createOp:
		made.ref = o.ref.Current()
		b.names.maker[made.ref.String()] = i
	case *commentOp:
		made.typ = commentType
	case *updateOp:
		made.typ, made.ref = o.ref.Type, o.ref
	case *supersedeOp:
		if made.ref = o.made(); o.make != nil {
			b.names.maker[made.ref.String()] = i
		} else if of, ok := b.aliases[o.in.ReplacementRef]; ok {
			made = of
		}
	case *linkOp:
		made.typ, made.link, made.edge = replicate.LinkType, o, o
	case *citeOp:
		made.typ, made.link, made.edge = replicate.LinkType, o, o
	case *signalOp:
		made.typ, made.edge = replicate.SignalType, o
	}
	if made.typ == "" {
		made.typ = made.ref.Type
	}
	if alias := b.names.own[i]; alias != "" {
		b.aliases["@"+alias] = made
	}
}

// tie notes which items name what others make, and lets ops read what is there
// already of what their aliases mean.
func (b *items) tie(in *verb.BatchRequest) {
	for i := range in.Items {
		for _, ref := range in.Items[i].Refs() {
			if by, ok := b.names.maker[ref.Text]; ok && by != i {
				b.names.named[by] = append(b.names.named[by], naming{i, ref})
			}
		}
		switch o := b.ops[i].(type) {
		case *linkOp:
			b.mean(o)
		case *citeOp:
			b.mean(o.linkOp)
		case *createOp:
			for _, l := range o.links {
				b.mean(l)
			}
		case *commentOp:
			for _, l := range o.links {
				b.about(l)
			}
		case *supersedeOp:
			if o.make != nil {
				for _, l := range o.make.links {
					b.about(l)
				}
			}
		case *signalOp:
			o.ref = b.meant(o.refText, o.ref)
		case *unlinkOp:
			o.key.from, o.key.to = b.meant(o.in.From, o.key.from), b.meant(o.in.To, o.key.to)
		}
	}
}

func (b *items) mean(l *linkOp) {
	l.from, l.to = b.meant(l.fromText, l.from), b.meant(l.toText, l.to)
	l.single = b.hub.isSingle(l.from.Type, l.predicate)
	b.about(l)
}

// about tells a link what makes the links and signals that it is about.
func (b *items) about(l *linkOp) {
	for _, text := range append([]string{l.toText}, l.refTexts...) {
		if edge := b.aliases[text].edge; edge != nil && edge != edgeMaker(l) {
			if l.of == nil {
				l.of = make(map[string]edgeMaker)
			}
			l.of[text] = edge
		}
	}
}

// meant returns what is known of the ref that a text means.
func (b *items) meant(text string, ref artifact.Ref) artifact.Ref {
	if strings.HasPrefix(text, "@") {
		if a := b.aliases[text]; a.ref.ID != "" {
			return a.ref
		}
	}
	return ref
}

var _ reader = (*refusedOp)(nil)

// A refusedOp is an item that was refused before the transaction.
type refusedOp struct{ err error }

func (*refusedOp) needs(*needs)                    {}
func (*refusedOp) answer(artifact.Seq, string) any { return nil }

// reads implements reader: what else is wrong with the item.
func (o *refusedOp) reads(_ *state, round readRound, r *reads) {
	if d, ok := errors.AsType[*doubtful](o.err); ok {
		d.reads(round, r)
	}
}

func (o *refusedOp) decide(s *state) error {
	if d, ok := errors.AsType[*doubtful](o.err); ok {
		return d.complete(s)
	}
	return o.err
}
