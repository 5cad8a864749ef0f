package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const maxReasonLength = 2000

// signal answers the verb of that name.
func (h *Hub) signal(ctx context.Context, in verb.SignalRequest) (out verb.SignalResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.SignalResult](ctx, h, c, &writeRequest{
		verb: "signal", request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			if namesEdge(in.Ref) {
				return []op{&fixedOp{ref: in.Ref}}, nil
			}
			o, err := h.newSignal(c, &in, false)
			return []op{o}, err
		},
	})
}

// A signalOp attaches one number to an artifact.
type signalOp struct {
	refText       string
	ref           artifact.Ref // zero while it is an alias
	kind          string
	dimension     string
	value, weight artifact.Decimal
	reason        string
	metadata      json.RawMessage
	voter         string
	voterKind     string
	opponent      artifact.Ref // of a duel
	requestID     string

	id     string // decided
	exists bool
	dry    bool
	after  artifact.Aggregate
	stored *replicate.Signal // as it is or will be
}

// importVoter begins the names of voters that an import brings.
const importVoter = "import:"

// newSignal checks all of a request that can be checked without the database.
func (h *Hub) newSignal(c *verb.Caller, in *verb.SignalRequest, imported bool) (*signalOp, error) {
	o := &signalOp{
		refText: in.Ref, kind: in.Kind, dimension: in.Dimension, reason: in.Reason, metadata: json.RawMessage("null"),
		voter: c.Actor.ID, voterKind: c.Actor.Kind, requestID: c.RequestID,
	}
	var problems []artifact.Problem
	note := func(path, constraint, message string) {
		problems = append(problems, artifact.Problem{Path: path, Constraint: constraint, Message: message})
	}
	ref, faults := refOrAlias(in.Ref, "/ref")
	o.ref, problems = ref, append(problems, faults...)
	var err error
	if o.value, err = artifact.ParseDecimal(in.Value.String()); err != nil {
		note("/value", "decimal", err.Error())
	}
	if o.weight, err = artifact.ParseDecimal(cmp.Or(in.Weight.String(), "1")); err != nil {
		note("/weight", "decimal", err.Error())
	} else if o.weight.Float() < 0 {
		note("/weight", "minimum", "a weight is not negative")
	}
	if len(in.Reason) > maxReasonLength {
		note("/reason", "max_length", "a reason is at most 2000 bytes")
	}
	if len(in.Metadata) > 0 {
		canonical, faults := artifact.Canonical(in.Metadata, "/metadata")
		problems = append(problems, faults...)
		o.metadata = canonical
	}
	schema := h.schemas.get(o.ref.Type)
	if in.Kind == artifact.KindDuel && problems == nil && (schema == nil || schema.CheckKinds([]string{in.Kind}, "") == nil) {
		o.opponent, problems = artifact.CheckDuel(o.value, o.metadata, "")
	}
	switch {
	case in.Voter == "":
	case !imported:
		note("/voter", "import_only", "only an import by an admin names a voter; yours is taken from the token")
	case !strings.HasPrefix(in.Voter, importVoter) || !artifact.ValidID(in.Voter):
		note("/voter", "voter", "an imported voter is import:<name>")
	default:
		o.voter, o.voterKind = in.Voter, "human"
	}
	if problems == nil {
		return o, nil
	}
	if schema != nil { // checked again once the artifact is there
		for _, p := range schema.CheckSignal(o.kind, o.dimension, o.value, "") {
			if !slices.ContainsFunc(problems, func(q artifact.Problem) bool { return q.Path == p.Path }) {
				problems = append(problems, p)
			}
		}
	}
	return nil, artifact.Invalid(problems...)
}

// mayShare implements sharer.
func (o *signalOp) mayShare() bool { return true }

func (o *signalOp) needs(n *needs) {
	if o.opponent.Type != "" {
		n.share[o.opponent] = true
	}
	if o.ref.Type == "" {
		return // of an artifact that the batch makes
	}
	ref := o.ref.Current()
	if _, ok := n.write[ref]; !ok {
		n.write[ref] = false
	}
	n.types[ref.Type] = true
	n.signals[signalKey{ref, o.kind, o.dimension, o.voter}] = true
}

func (o *signalOp) decide(s *state) error {
	o.exists, o.dry = false, s.dry
	var err error
	if o.ref, err = s.resolve(o.refText); err != nil {
		return at(err, "/ref")
	}
	target, err := s.visible(o.ref, "/ref")
	if err != nil {
		return err
	}
	if err := s.needWriter(target.Scope, "signaling"); err != nil {
		return err
	}
	if err := checkPin(o.refText, target); err != nil {
		return err
	}
	schema, err := s.schemaOf(target.Type)
	if err != nil {
		return err
	}
	if problems := schema.CheckSignal(o.kind, o.dimension, o.value, ""); problems != nil {
		return artifact.Invalid(problems...)
	}
	if err := o.checkOpponent(s, target); err != nil {
		return err
	}
	mode := schema.Signals[o.kind].Aggregation
	key := signalKey{o.ref.Current(), o.kind, o.dimension, o.voter}
	last := s.signals[key]
	sum := s.sum(key)
	edit(s, sum)
	if last != nil && mode == artifact.AggregateReplace && last.value.Equal(o.value) && last.weight.Equal(o.weight) && last.reason == o.reason && last.metadata == string(o.metadata) {
		o.id, o.exists = last.id, true
		o.stored = o.row(s, target, last.id)
		o.stored.VoterKind = last.voterKind
		o.after = sum.aggregate()
		return nil
	}
	o.id = "s-" + newUUID()
	sum.add(o.value, last, mode)
	o.after = sum.aggregate()
	set(s, s.signals, key, &lastSignal{id: o.id, value: o.value, weight: o.weight, reason: o.reason, voterKind: o.voterKind, metadata: string(o.metadata)})
	if !sum.queued {
		sum.queued = true
		s.sumOrder = append(s.sumOrder, sum)
	}
	o.stored = o.row(s, target, o.id)
	g := &signalRow{key: key, Signal: *o.stored}
	raw, hash, err := replicate.Encode(g.Signal)
	if err != nil {
		return err
	}
	g.hash = hash
	s.newSignals = append(s.newSignals, g)
	s.rows.internal = target.audience == participants
	s.rows.putEncoded(target.Scope, replicate.KindSignal, o.address(), 1, hash, artifact.Hash{}, raw)
	detail := map[string]any{"kind": o.kind, "signal": o.address(), "value": json.Number(o.value.String()), "voter": o.voter}
	if o.dimension != "" {
		detail["dimension"] = o.dimension
	}
	if err := s.rows.event(&eventOf{typ: target.Type + ".signaled", ref: target.ref().String(), payload: detail}); err != nil || o.kind != artifact.KindRank {
		return err
	}
	return s.score(schema, target)
}

// row is the signal as it is stored under an id.
func (o *signalOp) row(s *state, target *head, id string) *replicate.Signal {
	return &replicate.Signal{
		Aggregate: o.after, At: s.caller.Now, By: s.caller.Actor.ID, Dimension: o.dimension, ID: id, Kind: o.kind, Metadata: o.metadata,
		Reason: o.reason, Ref: o.ref.Current().String(), Scope: target.Scope, Value: json.Number(o.value.String()),
		Voter: o.voter, VoterKind: o.voterKind, Weight: json.Number(o.weight.String()),
	}
}

// checkOpponent refuses a duel with what is not there, is of another type or is not
// known to all who see the duel.
func (o *signalOp) checkOpponent(s *state, target *head) error {
	if o.kind != artifact.KindDuel {
		return nil
	}
	p := artifact.Problem{Path: "/metadata/opponent", Constraint: "opponent", Value: artifact.Received(o.opponent.String())}
	switch h := s.heads[o.opponent]; {
	case o.opponent == target.ref().Current():
		p.Message = "a duel is with another artifact"
	case o.opponent.Type != target.Type:
		p.Message = "a duel is with an artifact of the same type, " + target.Type
	case h == nil:
		p.Message = "there is nothing of this name that you may see"
	case h.audience == participants || h.Scope != artifact.Commons && h.Scope != target.Scope:
		p.Message = "a duel is with what all may see who see the duel: in its scope or in commons"
	default:
		return nil
	}
	return artifact.Invalid(p)
}

// score keeps the quality score of a head whose ranks have changed.
func (s *state) score(schema *artifact.Schema, h *head) error {
	score := schema.Quality(func(dimension string) *float64 {
		if g := s.sums[signalKey{ref: h.ref().Current(), kind: artifact.KindRank, dimension: dimension}]; g != nil {
			a := g.aggregate()
			return a.Mean
		}
		return nil
	})
	if score == nil && h.QualityScore == nil || score != nil && h.QualityScore != nil && *score == *h.QualityScore {
		return nil
	}
	edit(s, h)
	h.QualityScore = score
	return s.addHead(h, nil)
}

func (o *signalOp) made() artifact.Ref { return artifact.Ref{Type: replicate.SignalType, ID: o.id} }

func (o *signalOp) address() string { return replicate.SignalType + ":" + o.id }

// sum returns the running sum that a signal adds to.
func (s *state) sum(key signalKey) *signalSum {
	key.voter = ""
	g, ok := s.sums[key]
	if !ok {
		g = &signalSum{key: key}
		s.sums[key] = g
	}
	return g
}

// add counts a voter's signal. In kinds that replace, it takes the place of the
// voter's last one.
func (g *signalSum) add(value artifact.Decimal, last *lastSignal, mode string) {
	if last == nil {
		g.voters++
	}
	if last != nil && mode == artifact.AggregateReplace {
		g.sum, g.sumSq = g.sum.Sub(last.value), g.sumSq.Sub(last.value.Mul(last.value))
	} else {
		g.n++
	}
	g.sum, g.sumSq = g.sum.Add(value), g.sumSq.Add(value.Mul(value))
}

func (g *signalSum) aggregate() artifact.Aggregate {
	return artifact.NewAggregate(g.key.kind, g.key.dimension, g.n, g.voters, g.sum, g.sumSq)
}

func (o *signalOp) answer(seq artifact.Seq, token string) any {
	r := &verb.SignalResult{
		Ref: o.address(), Revision: 1, Aggregate: o.after, RequestID: o.requestID, Idempotency: verb.IdempotencyNone, Seq: seq, ConsistencyToken: token,
		ProvenanceRefs: []string{}, Warnings: []artifact.Problem{},
	}
	if a, err := o.stored.Artifact(); err == nil { // it was encoded before
		r.ContentHash = a.ContentHash
	}
	if o.exists {
		r.Idempotency = verb.IdempotencyDeduplicated
	} else if o.dry {
		r.Warnings = append(r.Warnings, passingID())
	}
	return r
}
