package hub

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// needs is what a transaction locks and reads before it decides.
type needs struct {
	write    map[artifact.Ref]bool // heads to change; true: with their content
	conflict bool                  // something exists that was to be made: read all contents, to tell it
	share    map[artifact.Ref]bool // heads that must stay, such as links' targets
	bases    map[artifact.Ref]bool // pinned versions that must have been
	links    map[triple]bool
	signals  map[signalKey]bool
	types    map[string]bool
	scopes   map[string]bool
	versions map[string]int // schema version by type, as the ops were checked
	cited    map[citation]bool
	singles  map[singleKey]bool
	review   *candidateKey         // the candidate that is decided on
	fresh    map[artifact.Ref]bool // what ops make by ids that the hub made: nothing is there of it
	seen     []string              // scopes that those may see who need it
	still    bool                  // no type changes meanwhile, nor anything of one
}

// A triple identifies a link, with who makes it.
type triple struct {
	from      artifact.Ref
	predicate string
	to        artifact.Ref // not pinned
}

// A scopedRef is a version and a scope that it is in.
type scopedRef struct {
	ref   artifact.Ref
	scope string
}

// A signalKey identifies what a signal adds to and whose it is.
type signalKey struct {
	ref       artifact.Ref
	kind      string
	dimension string
	voter     string
}

func newNeeds(ops []op) *needs {
	n := &needs{
		write: make(map[artifact.Ref]bool), share: make(map[artifact.Ref]bool), bases: make(map[artifact.Ref]bool),
		links: make(map[triple]bool), signals: make(map[signalKey]bool),
		types: make(map[string]bool), scopes: make(map[string]bool), versions: make(map[string]int), cited: make(map[citation]bool),
		singles: make(map[singleKey]bool), fresh: make(map[artifact.Ref]bool),
	}
	for _, o := range ops {
		o.needs(n)
	}
	n.dropFresh()
	for ref := range n.write {
		delete(n.share, ref)
	}
	return n
}

// dropFresh leaves out what cannot be there, because it is of what the ops make.
func (n *needs) dropFresh() {
	if len(n.fresh) == 0 {
		return
	}
	for ref := range n.fresh {
		delete(n.write, ref)
		delete(n.share, ref)
	}
	maps.DeleteFunc(n.links, func(k triple, _ bool) bool { return n.fresh[k.from] || n.fresh[k.to] })
	maps.DeleteFunc(n.signals, func(k signalKey, _ bool) bool { return n.fresh[k.ref] })
	maps.DeleteFunc(n.singles, func(k singleKey, _ bool) bool { return n.fresh[k.from] })
}

// union returns what several members of a transaction need together.
func union(members []*member) *needs {
	if len(members) == 1 {
		n := members[0].needs
		n.seen = members[0].caller.VisibleScopes()
		return n
	}
	n := newNeeds(nil)
	for _, m := range members {
		for ref, content := range m.needs.write {
			n.write[ref] = n.write[ref] || content
		}
		maps.Copy(n.share, m.needs.share)
		maps.Copy(n.bases, m.needs.bases)
		maps.Copy(n.signals, m.needs.signals)
		maps.Copy(n.types, m.needs.types)
		maps.Copy(n.scopes, m.needs.scopes)
		maps.Copy(n.cited, m.needs.cited)
		maps.Copy(n.singles, m.needs.singles)
		for _, scope := range m.caller.VisibleScopes() {
			if !slices.Contains(n.seen, scope) {
				n.seen = append(n.seen, scope)
			}
		}
	}
	for ref := range n.write {
		delete(n.share, ref)
	}
	return n
}

// state is what a transaction has read, and what its ops make of it.
type state struct {
	hub      *Hub
	caller   *verb.Caller
	author   artifact.Actor // of what is written: the caller, or whose candidate it was
	decides  bool           // the caller decides on a candidate, having been asked for the right to
	imported bool
	dry      bool     // nothing is written
	scopes   []string // that the caller may see
	known    map[string]bool
	versions map[string]int // current schema version by type

	heads   map[artifact.Ref]*head
	taken   map[artifact.Ref]bool // ids of artifacts that the caller may not see
	bases   map[artifact.Ref]bool
	baseIn  map[scopedRef]bool
	links   map[triple]string // id of the caller's link
	signals map[signalKey]*lastSignal
	sums    map[signalKey]*signalSum // without voter
	aliases map[string]artifact.Ref  // of a batch's earlier items
	papers  papers
	singles map[singleKey][]singleLink // live links of cardinality one, where they were read

	knownLinks map[string]*replicate.Link // the caller's, by id, for their hash

	contents map[artifact.Ref]*artifact.Version // of pinned versions that are not current
	chains   map[artifact.Ref]artifact.Ref      // what artifacts were replaced by, as stored
	linkRows map[string]*linkRow                // links that may be taken back, by id
	threads  map[commentOn]bool
	agents   map[string]replicate.Agent // that the transaction makes, as far as it tells of them

	candidate *candidate // that is decided on; nil when there is none

	maker   map[string]int // the item of the batch that makes what an alias means
	item    int            // that is being decided
	ending  bool           // all items were decided
	waiting []waitingLink  // links to what a later item makes
	undo    []func()

	rows      changeRows
	announced []seenIn // agents that rows make known
	writes
}

// writes are what ops have decided to write, beside the log's rows.
type writes struct {
	written    []*head // new and changed, each once
	revisions  []*revisionRow
	newLinks   []*linkRow
	newSignals []*signalRow
	sumOrder   []*signalSum
	retracted  map[string]retraction     // links that are taken back, by id
	papersMade papers                    // what papers are cited by from now on
	papersGone map[string]bool           // ids of papers that are not cited by what they were
	facets     map[artifact.Ref]facetSet // that are to be other than they are
	more       []statement               // what ops write beside the above, in order
}

func newWrites() writes {
	return writes{retracted: make(map[string]retraction), papersMade: make(papers), papersGone: make(map[string]bool), facets: make(map[artifact.Ref]facetSet)}
}

// add adds the writes of another member.
func (w *writes) add(o *writes) {
	w.written, w.revisions = append(w.written, o.written...), append(w.revisions, o.revisions...)
	w.newLinks, w.newSignals = append(w.newLinks, o.newLinks...), append(w.newSignals, o.newSignals...)
	w.sumOrder, w.more = append(w.sumOrder, o.sumOrder...), append(w.more, o.more...)
	maps.Copy(w.retracted, o.retracted)
	maps.Copy(w.papersGone, o.papersGone)
	maps.Copy(w.facets, o.facets)
	maps.DeleteFunc(w.papersMade, func(_ paperIn, id string) bool { return o.papersGone[id] })
	maps.Copy(w.papersMade, o.papersMade)
}

// A statement is one more write of an op.
type statement struct {
	sql  string
	args []any
}

// also adds a write.
func (w *writes) also(sql string, args ...any) { w.more = append(w.more, statement{sql, args}) }

// Audiences of an artifact.
const (
	everyone     = "scope"        // all who may see its scope
	participants = "participants" // its author and those it is addressed to
)

// A head is an artifact as it is now.
type head struct {
	replicate.Head
	prev     artifact.Hash // row hash as stored; zero for a new one
	hash     artifact.Hash // row hash as it will be
	created  bool          // by this transaction
	audience string        // everyone or participants
	changed  bool
	content  []byte // of the current revision, when it was asked for
	// updatedKind is the kind of UpdatedBy; it is read with the content.
	updatedKind string
	words       *words // of the content, when they were made before the transaction
}

func (h *head) ref() artifact.Ref { return artifact.Ref{Type: h.Type, ID: h.ID, Hash: h.ContentHash} }

type revisionRow struct {
	replicate.Revision
	content    []byte
	provenance []byte
	hash       artifact.Hash
	words      *words
}

type linkRow struct {
	replicate.Link
	key  triple
	hash artifact.Hash
}

type signalRow struct {
	replicate.Signal
	key  signalKey
	hash artifact.Hash
}

type lastSignal struct {
	id            string
	value, weight artifact.Decimal
	reason        string
	voterKind     string
	metadata      string
}

type signalSum struct {
	key        signalKey // without voter
	n, voters  int64
	sum, sumSq artifact.Decimal
	queued     bool
}

// errNeedsContent means that a conflict is to be told whose content was not read.
var errNeedsContent = errors.New("the current content is needed")

// errStaleSchemas means that a type changed since the ops were checked.
var errStaleSchemas = errors.New("schemas changed")

// view returns what a member sees of what was read. What members before it have
// written is there too; heads, sums and the like are one for all.
func (l *loaded) view(h *Hub, m *member) *state {
	s := &state{
		hub: h, caller: m.caller, author: m.caller.Actor, imported: m.request.imported, dry: m.request.options.DryRun, scopes: m.caller.VisibleScopes(),
		known: make(map[string]bool), versions: l.versions, heads: make(map[artifact.Ref]*head), taken: make(map[artifact.Ref]bool),
		bases: make(map[artifact.Ref]bool), baseIn: make(map[scopedRef]bool), links: make(map[triple]string),
		signals: l.signals, sums: l.sums, aliases: make(map[string]artifact.Ref), papers: l.papers, singles: l.singles, knownLinks: l.known,
		contents: make(map[artifact.Ref]*artifact.Version), chains: make(map[artifact.Ref]artifact.Ref), linkRows: make(map[string]*linkRow),
		threads: make(map[commentOn]bool), agents: l.agents, candidate: l.candidate, writes: newWrites(),
	}
	for id := range m.needs.scopes {
		s.known[id] = l.scopes[id] && slices.Contains(s.scopes, id)
	}
	for _, refs := range []map[artifact.Ref]bool{m.needs.write, m.needs.share} {
		for ref := range refs {
			if h := l.heads[ref]; h != nil {
				s.meet(ref, h)
			}
		}
	}
	for ref := range m.needs.bases {
		for _, scope := range s.scopes {
			if in := (scopedRef{ref, scope}); l.bases[in] {
				s.bases[ref], s.baseIn[in] = true, true
			}
		}
	}
	for k := range m.needs.links {
		if id, ok := l.links[ownLink{k, m.caller.Actor.ID}]; ok {
			s.links[k] = id
		}
	}
	return s
}

// take keeps what a member has written for those after it.
func (l *loaded) take(s *state) {
	for _, h := range s.written {
		l.heads[artifact.Ref{Type: h.Type, ID: h.ID}] = h
	}
	for _, r := range s.revisions {
		l.bases[scopedRef{artifact.Ref{Type: r.Type, ID: r.ID, Hash: r.ContentHash}, r.Scope}] = true
	}
	for _, k := range s.newLinks {
		l.links[ownLink{k.key, k.By}] = k.ID
	}
}

// checkSchemas refuses to go on with schemas older than the registry's.
func (s *state) checkSchemas(n *needs) error {
	for typ, version := range n.versions {
		if s.versions[typ] != version {
			return errStaleSchemas
		}
	}
	return nil
}

// visible returns the head of ref, which stands at a path of the request, or not_found.
func (s *state) visible(ref artifact.Ref, at string) (*head, error) {
	if h, ok := s.heads[ref.Current()]; ok {
		return h, nil
	}
	return nil, s.hub.notFound(ref.Current(), at)
}

// notFound is the error of a ref, at a path of the request, of what is not there.
func (h *Hub) notFound(ref artifact.Ref, at string) *artifact.Error {
	return artifact.NotFound(ref.String()).Typed(ref, h.schemas.addressed(), at)
}

// needWriter refuses a caller who may not write in a scope that the caller may see.
func (s *state) needWriter(scope, action string) error {
	if s.decides || s.imported && scope == artifact.Commons { // by an admin, who was asked for that
		return nil
	}
	return s.caller.Need(scope, action, verb.Contributor)
}

// resolve returns the ref that a text means: a ref, or @alias of an item before.
func (s *state) resolve(text string) (artifact.Ref, error) {
	if len(text) > 0 && text[0] == '@' {
		ref, ok := s.aliases[text[1:]]
		if !ok {
			return ref, unknownAlias(text)
		}
		return ref, nil
	}
	return artifact.ParseRef(text)
}

func unknownAlias(text string) error {
	return artifact.Invalid(artifact.Problem{Constraint: "ref_alias", Message: "no earlier item of the batch has this alias", Value: artifact.Received(text)})
}

// there reports whether an artifact is there, as is its version if that counts.
func (s *state) there(ref artifact.Ref, version bool) bool {
	_, ok := s.heads[ref.Current()]
	return ok && (!version || !ref.IsPinned() || s.bases[ref])
}

// touch notes that a head is new or changed.
func (s *state) touch(h *head) {
	if !h.changed {
		h.changed = true
		s.written = append(s.written, h)
	}
}

// addRevision adds a version and its row.
func (s *state) addRevision(h *head, content []byte, p replicate.Provenance, note string, signatures []byte) error {
	r := &revisionRow{
		Revision: replicate.Revision{
			ContentHash: h.ContentHash, CreatedAt: s.caller.Now, CreatedBy: s.author.ID, ID: h.ID, Note: note,
			Provenance: p, Revision: h.Head.Revision, Signatures: signatures, SchemaVersion: h.SchemaVersion, Scope: h.Scope, State: h.State, Title: h.Title, Type: h.Type,
		},
		content: content,
	}
	raw, hash, err := replicate.Encode(r.Revision)
	if err != nil {
		return err
	}
	r.hash = hash
	if r.provenance, err = json.Marshal(p); err != nil {
		return err
	}
	if r.words, err = s.wordsOf(h, content); err != nil {
		return err
	}
	s.revisions = append(s.revisions, r)
	set(s, s.bases, h.ref(), true)
	set(s, s.baseIn, scopedRef{h.ref(), h.Scope}, true)
	s.rows.internal = h.audience == participants
	s.rows.putEncoded(h.Scope, replicate.KindRevision, h.ref().Current().String(), h.Head.Revision, hash, artifact.Hash{}, raw)
	return s.rows.event(nil)
}

// addHead adds the row of a head as it is now.
func (s *state) addHead(h *head, e *eventOf) error {
	raw, hash, err := replicate.Encode(h.Head)
	if err != nil {
		return err
	}
	edit(s, h)
	s.rows.internal = h.audience == participants
	s.rows.putEncoded(h.Scope, replicate.KindArtifact, h.ref().Current().String(), h.Head.Revision, hash, h.hash, raw)
	h.hash = hash
	s.touch(h)
	return s.rows.event(e)
}
