package artifact

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// A ValidatorMode says what becomes of the faults that a [Guard] finds.
type ValidatorMode string

// The modes of a validator.
const (
	ModeEnforce ValidatorMode = "enforce" // they refuse the write
	ModeShadow  ValidatorMode = "shadow"  // they are told, and the write goes on
	ModeOff     ValidatorMode = "off"     // they are not looked for
)

// ParseValidatorMode reads a mode. Its error is an [*Error] with code
// [CodeValidationFailed] and a path of "".
func ParseValidatorMode(s string) (ValidatorMode, error) {
	switch m := ValidatorMode(s); m {
	case ModeEnforce, ModeShadow, ModeOff:
		return m, nil
	}
	return "", Invalid(Problem{
		Constraint: "enum", Message: "a validator's mode is enforce, shadow or off", Value: Received(s),
		Suggestion: suggest(s, []string{string(ModeEnforce), string(ModeShadow), string(ModeOff)}),
	})
}

// A Guard is one of the validators that a schema may name beside its JSON
// Schema: a rule for the citations of one kind that a content makes. Whether
// what is cited exists, the caller finds out; the rule itself is pure.
type Guard struct {
	Name string
	Doc  string        // what it holds to, for people
	Mode ValidatorMode // unless it is configured otherwise

	Kind     CitationKind // "" when the verbs keep the rule, told or not, and in no other mode
	In       Placement    // the placements that it looks at, or-ed together
	Resolves bool         // what is cited must exist
	Forbids  bool         // nothing may be cited in this way
}

// The names of the validators that look at content.
const (
	GuardResolvePMID = "resolve_pmid_citations"
	GuardResolveDOI  = "resolve_doi_citations"
	GuardInlinePMID  = "no_inline_pmid_outside_citation_block"
	GuardDOI         = "doi_syntax"
	GuardNCT         = "nct_number"
	GuardGene        = "hgnc_symbol"
	GuardResolveGene = "resolve_gene_symbols"
	GuardChEBI       = "chebi_id"
)

// The names of the validators that the verbs keep for every type: what is stored
// must hold together whatever a schema says. Their faults carry these names too.
const (
	GuardTargets    = "link_targets_exist"
	GuardSelf       = "no_self_supersede"
	GuardTransition = "lifecycle_transition_allowed"
	GuardActor      = "actor_authorized_for_lifecycle"
	GuardEvidence   = "evidence_supports_claim"
)

const anywhere = InMarker | InField | InProse

// guards are all validators that there are. A new one is a row here.
var guards = []Guard{
	{Name: GuardResolvePMID, Doc: "each PMID in a [PMID:n] marker is that of a paper here", Mode: ModeEnforce, Kind: CitePMID, In: InMarker, Resolves: true},
	{Name: GuardResolveDOI, Doc: "each DOI in a [DOI:10.n/x] marker is that of a paper here", Mode: ModeEnforce, Kind: CiteDOI, In: InMarker, Resolves: true},
	{Name: GuardInlinePMID, Doc: "PMIDs stand in [PMID:n] markers, not bare in the text or in addresses of PubMed", Mode: ModeShadow, Kind: CitePMID, In: InProse, Forbids: true},
	{Name: GuardDOI, Doc: "DOIs in markers and in fields called doi are well-formed", Mode: ModeEnforce, Kind: CiteDOI, In: anywhere},
	{Name: GuardNCT, Doc: "numbers of ClinicalTrials.gov are well-formed; what only looks like one, such as NCT123, is told and refuses nothing", Mode: ModeEnforce, Kind: CiteNCT, In: anywhere | NearMiss},
	{Name: GuardGene, Doc: "gene symbols in [HGNC:x] markers and in the fields for them are written as HGNC does", Mode: ModeEnforce, Kind: CiteGene, In: anywhere},
	{Name: GuardResolveGene, Doc: "gene symbols in [HGNC:x] markers and in the fields for them are those of genes here; nothing is looked for while no gene is", Mode: ModeShadow, Kind: CiteGene, In: InMarker | InField, Resolves: true},
	{Name: GuardChEBI, Doc: "ids of ChEBI are well-formed; what only looks like one, such as CHEBI:abc, is told and refuses nothing", Mode: ModeEnforce, Kind: CiteChEBI, In: anywhere | NearMiss},
	{Name: GuardTargets, Doc: "what a link leads to exists, or is made in the same batch; kept for every type", Mode: ModeEnforce},
	{Name: GuardSelf, Doc: "nothing supersedes itself; kept for every type", Mode: ModeEnforce},
	{Name: GuardTransition, Doc: "states change as the schema says; kept for every type: a schema that allows more says so in its lifecycle", Mode: ModeEnforce},
	{Name: GuardActor, Doc: "only those the schema names move an artifact into a state; kept for every type", Mode: ModeEnforce},
	{Name: GuardEvidence, Doc: "what a link names as evidence exists, where all may see it who see the link; kept for every type", Mode: ModeEnforce},
}

// Guards returns all validators that a schema may name.
func Guards() []Guard { return slices.Clone(guards) }

// CheckValidators returns what is wrong with the validators that a schema names.
func CheckValidators(names []string, at string) (problems []Problem) {
	known := make([]string, len(guards))
	for i := range guards {
		known[i] = guards[i].Name
	}
	for i, name := range names {
		p := Problem{Path: at + "/" + strconv.Itoa(i), Value: Received(name)}
		switch {
		case !slices.Contains(known, name):
			p.Constraint, p.Message, p.Suggestion = "validator", oneOf("a validator", known), suggest(name, known)
		case slices.Contains(names[:i], name):
			p.Constraint, p.Message = "unique_items", "a validator is named once"
		default:
			continue
		}
		if problems = append(problems, p); len(problems) == maxCheckProblems {
			break
		}
	}
	return problems
}

// CheckValidatorModes returns what is wrong with the modes that a schema gives the
// validators it names. Those that the verbs keep for every type are enforced: a
// schema cannot let links lead nowhere or states change as anyone likes.
func CheckValidatorModes(modes map[string]ValidatorMode, names []string, at string) (problems []Problem) {
	for _, name := range slices.Sorted(maps.Keys(modes)) {
		p := Problem{Path: at + "/" + EscapePointer(name), Value: Received(string(modes[name]))}
		_, err := ParseValidatorMode(string(modes[name]))
		i := slices.IndexFunc(guards, func(g Guard) bool { return g.Name == name })
		switch {
		case !slices.Contains(names, name):
			p.Constraint, p.Message = "validator", "the mode is of a validator that the type does not name"
		case err != nil:
			p = AsError(err).Problems[0]
			p.Path = at + "/" + EscapePointer(name)
		case i >= 0 && guards[i].Kind == "" && modes[name] != ModeEnforce:
			p.Constraint, p.Message, p.Suggestion = "always_enforced", name+" is kept for every type and cannot be in shadow or off", Received(string(ModeEnforce))
		default:
			continue
		}
		problems = append(problems, p)
	}
	return problems
}

// A Lookup asks whether what a citation names exists.
type Lookup struct {
	Kind CitationKind
	ID   string // in normal form
}

// An Inspection is a content under the guards that its schema names. It is made
// once for a write; looking up and checking may be repeated.
type Inspection struct {
	guards   []Guard // none is off
	found    []Citation
	complete bool
}

// Inspect looks for the citations of a canonical content that the named
// validators are about. Modes holds the modes of those that differ from their
// default; names that are unknown count for nothing.
func Inspect(content []byte, names []string, modes map[string]ValidatorMode) *Inspection {
	n := new(Inspection)
	for _, g := range guards {
		if mode, ok := modes[g.Name]; ok {
			g.Mode = mode
		}
		if g.Kind != "" && g.Mode != ModeOff && slices.Contains(names, g.Name) {
			n.guards = append(n.guards, g)
		}
	}
	if len(n.guards) > 0 {
		n.found, n.complete = FindCitations(content)
	}
	return n
}

// Lookups returns what [Inspection.Check] must know of, each thing once, in the
// order of the text.
func (n *Inspection) Lookups() (lookups []Lookup) {
	seen := make(map[Lookup]bool)
	for i := range n.found {
		c := &n.found[i]
		l := Lookup{c.Kind, c.ID}
		if c.ID == "" || seen[l] || !slices.ContainsFunc(n.guards, func(g Guard) bool { return g.Resolves && g.sees(c) }) {
			continue
		}
		seen[l] = true
		lookups = append(lookups, l)
	}
	return lookups
}

// Check returns the faults that refuse the write and those that are only told,
// at most 100 of each guard; near misses, which may be something else, are told. Known holds the lookups that were answered with
// yes. The problems' constraints are the validators' names, their paths begin
// with at.
func (n *Inspection) Check(known map[Lookup]bool, at string) (refused, shadowed []Problem) {
	for i := range n.guards {
		g := &n.guards[i]
		problems, near := g.check(n.found, n.complete, known, at)
		shadowed = append(shadowed, near...)
		if g.Mode == ModeEnforce {
			refused = append(refused, problems...)
		} else {
			shadowed = append(shadowed, problems...)
		}
	}
	return refused, shadowed
}

func (g *Guard) sees(c *Citation) bool { return g.Kind == c.Kind && g.In&c.Placement != 0 }

func (g *Guard) check(found []Citation, complete bool, known map[Lookup]bool, at string) (problems, near []Problem) {
	if !complete {
		problems = append(problems, Problem{
			Path: at, Constraint: g.Name,
			Message: fmt.Sprintf("a content makes at most %d citations, and their paths are of bearable length", MaxCitations),
		})
	}
	for i := range found {
		c := &found[i]
		if !g.sees(c) {
			continue
		}
		p := Problem{Path: at + c.Path, Constraint: g.Name, Value: Received(c.Text)}
		switch syntax := citationSyntaxes[c.Kind]; {
		case c.Placement == NearMiss:
			p.Message, p.Suggestion = fmt.Sprintf("byte %d: this looks like %s: %s", c.Offset, syntax.name, syntax.says), c.Kind.mended(c.Text)
			if len(near) < maxCheckProblems {
				near = append(near, p)
			}
			continue
		case g.Forbids:
			p.Message = fmt.Sprintf("byte %d: %s in a text stands in a marker", c.Offset, syntax.name)
			if c.ID != "" {
				p.Message += fmt.Sprintf(", [%s:%s]", markerWord(c.Kind), c.ID)
				p.Suggestion = Received("[" + markerWord(c.Kind) + ":" + c.ID + "]")
			}
		case c.ID == "":
			p.Message, p.Suggestion = fmt.Sprintf("byte %d: %s", c.Offset, syntax.says), c.Kind.mended(c.Text)
		case g.Resolves && !known[Lookup{c.Kind, c.ID}]:
			p.Message = fmt.Sprintf("byte %d: %s %s names nothing that is here", c.Offset, markerWord(c.Kind), c.ID)
		default:
			continue
		}
		if problems = append(problems, p); len(problems) == maxCheckProblems {
			break
		}
	}
	return problems, near
}
