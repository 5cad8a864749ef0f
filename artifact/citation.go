package artifact

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A CitationKind says what a citation names.
type CitationKind string

// The kinds of citation.
const (
	CitePMID  CitationKind = "pmid"  // a PubMed record: 31452104
	CiteDOI   CitationKind = "doi"   // a DOI, in lower case: 10.1038/nature11283
	CiteNCT   CitationKind = "nct"   // a ClinicalTrials.gov record: NCT02091141
	CiteGene  CitationKind = "gene"  // an HGNC symbol: TREM2
	CiteChEBI CitationKind = "chebi" // a chemical entity: CHEBI:15377
)

// A Placement says where a text holds a citation.
type Placement uint8

// The placements of a citation. Of a PMID, only the ones that are meant to
// cite something are in markers; to be in prose is to be outside of them.
const (
	InMarker Placement = 1 << iota // [PMID:1]
	InField                        // the whole value of a field that is made for it
	InProse                        // anywhere else in a text
	NearMiss                       // in prose too, and no citation: what was probably meant to be one
)

// A Citation is one reference that a content makes.
type Citation struct {
	Kind      CitationKind
	ID        string // normal form, see [CitationKind.Normalize]; "" when Text has none
	Placement Placement
	Path      string // JSON pointer into the content, to the string
	Text      string // as it stands there
	Offset    int    // of Text in the string, in bytes
}

// MaxCitations bounds what [FindCitations] finds in one content.
const MaxCitations = 10_000

// maxCitationPaths bounds the paths of all citations in bytes: keys may be long
// and every path repeats them.
const maxCitationPaths = 8 << 20

// FindCitations returns the citations of a canonical content in the order of
// its text, in linear time. It is not complete when there are more than
// [MaxCitations].
//
// A marker is [PMID:31452104], [DOI:10.1038/nature11283] or [HGNC:TREM2], in any
// case, with space around its parts if need be, on one line. It may list
// several: [PMID:1, 2; DOI:10.1/x], each naming its kind or taking that of the
// one before; a comma or semicolon parts them, and within DOIs, which may hold
// both, only one before a space. Brackets within a DOI must pair. A marker whose
// items are malformed is still one, and its citations lack an ID, but that
// [HGNC:123] names a record of HGNC and no symbol, and is left alone.
//
// Fields are those called doi, and at the top of the content target_gene,
// target_genes, gene_symbol and symbol; their lists too.
//
// Found in prose are NCT02091141 and CHEBI:15377, in any case, and near misses of
// them, such as NCT123 and CHEBI:abc; and PMIDs that
// stand in no marker: "PMID: 1", "PMID1", "PMIDs 31452104, 25058277", addresses
// at PubMed and Europe PMC. The link of a marker, [PMID:1](https://…/1), may name
// the marker's own. Where a content comes from (/provenance), and fields that hold
// nothing but an address or that are made for PMIDs, are not prose in this.
func FindCitations(content []byte) (found []Citation, complete bool) {
	f := citationFinder{raw: content}
	complete = f.walk()
	return f.found, complete
}

// A citationFinder walks canonical JSON once.
type citationFinder struct {
	raw       []byte
	levels    []level
	found     []Citation
	pathBytes int

	text   string // the string that the walk is at
	path   string // to it, once it is needed
	inline bool   // PMIDs are looked for outside of markers
	link   int    // where the link of the last marker ends
	linkID string // the PMID that it may name
}

// A level is an object or array that the walk is in.
type level struct {
	array   bool
	index   int    // of the element
	key     []byte // of the member, in its raw form
	wantKey bool
}

// walk returns false when it had to stop.
func (f *citationFinder) walk() bool {
	for pos := 0; pos < len(f.raw); pos++ {
		top := len(f.levels) - 1
		switch b := f.raw[pos]; {
		case b == '{' || b == '[':
			if top+1 == MaxContentDepth {
				return false
			}
			f.levels = append(f.levels, level{array: b == '[', wantKey: b == '{'})
		case top < 0: // a value that no object or array holds
		case b == '}' || b == ']':
			f.levels = f.levels[:top]
		case b == ',':
			f.levels[top].index++
			f.levels[top].wantKey = !f.levels[top].array
		case b == '"':
			end := stringEnd(f.raw, pos)
			raw := f.raw[pos:end]
			pos = end - 1
			if f.levels[top].wantKey {
				f.levels[top].key, f.levels[top].wantKey = raw, false
			} else if !f.scan(jsonText(raw)) {
				return false
			}
		}
	}
	return true
}

// stringEnd returns where the string that begins at start ends.
func stringEnd(raw []byte, start int) int {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// jsonText returns what a JSON string stands for, "" if it is none.
func jsonText(raw []byte) (s string) {
	if n := len(raw); n > 1 && raw[n-1] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : n-1])
	}
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// pointer returns the JSON pointer to where the walk is.
func (f *citationFinder) pointer() string {
	var b strings.Builder
	for _, l := range f.levels {
		b.WriteByte('/')
		if l.array {
			b.WriteString(strconv.Itoa(l.index))
		} else {
			b.WriteString(EscapePointer(jsonText(l.key)))
		}
	}
	return b.String()
}

// field returns the name of the field that the walk is in, a list being part of
// its field, and whether it is at the top of the content.
func (f *citationFinder) field() (name string, top bool) {
	for i, l := range slices.Backward(f.levels) {
		if !l.array {
			return jsonText(l.key), i == 0
		}
	}
	return "", false
}

// add returns false when there are too many.
func (f *citationFinder) add(kind CitationKind, placement Placement, start, end int, id string) bool {
	if f.path == "" {
		f.path = f.pointer()
	}
	f.pathBytes += len(f.path)
	if len(f.found) == MaxCitations || f.pathBytes > maxCitationPaths {
		return false
	}
	id, _ = kind.Normalize(id)
	f.found = append(f.found, Citation{
		Kind: kind, ID: id, Placement: placement, Path: f.path, Text: f.text[start:end], Offset: start,
	})
	return true
}

// scan looks through one text. It returns false when the walk must stop.
func (f *citationFinder) scan(text string) bool {
	f.text, f.path, f.link = text, "", 0
	name, top := f.field()
	f.inline = name != "pmid" && name != "pmids" && name != "paper_pmid" && !isAddress(text) &&
		(len(f.levels) == 1 || string(f.levels[0].key) != `"provenance"`)
	kind := CitationKind("")
	switch {
	case text == "":
		return true
	case name == "doi":
		kind = CiteDOI
	case top && (name == "target_gene" || name == "target_genes" || name == "gene_symbol" || name == "symbol"):
		kind = CiteGene
	}
	if kind != "" && !f.add(kind, InField, 0, len(text), text) {
		return false
	}
	for pos := 0; pos < len(text); {
		next, ok := pos, true
		switch text[pos] {
		case '[':
			next, ok = f.marker(pos)
		case 'N', 'n':
			next, ok = f.trial(pos)
		case 'C', 'c':
			next, ok = f.chemical(pos)
		case 'P', 'p':
			if f.inline {
				next, ok = f.barePMID(pos)
			}
		case '/':
			if f.inline {
				next, ok = f.europePMC(pos)
			}
		}
		if !ok {
			return false
		}
		pos = max(next, pos+1)
	}
	return true
}

// isAddress reports whether a text is one web address and nothing else.
func isAddress(text string) bool {
	return (hasFold(text, 0, "https://") || hasFold(text, 0, "http://")) && strings.IndexFunc(text, unicode.IsSpace) < 0
}

// hasFold reports whether word, in lower case, stands at pos in any case.
func hasFold(text string, pos int, word string) bool {
	if len(text)-pos < len(word) {
		return false
	}
	for i := range len(word) {
		b := text[pos+i]
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

// digits returns how many digits stand at pos.
func digits(text string, pos int) int {
	n := 0
	for pos+n < len(text) && text[pos+n] >= '0' && text[pos+n] <= '9' {
		n++
	}
	return n
}

// wordBefore and wordAt report whether a letter or digit ends before pos, or
// begins at it. The underscore is Markdown's emphasis.
func wordBefore(text string, pos int) bool {
	r, _ := utf8.DecodeLastRuneInString(text[:pos])
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

func wordAt(text string, pos int) bool {
	r, _ := utf8.DecodeRuneInString(text[pos:])
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// leastTrialDigits are so many that NCT before them can mean nothing else.
const leastTrialDigits = 5

func (f *citationFinder) trial(pos int) (next int, ok bool) {
	if !hasFold(f.text, pos, "nct") || wordBefore(f.text, pos) {
		return pos, true
	}
	n := digits(f.text, pos+3)
	end := pos + 3 + n
	if n >= leastTrialDigits && !wordAt(f.text, end) {
		return end, f.add(CiteNCT, InProse, pos, end, f.text[pos:end])
	}
	if f.text[pos:pos+3] != "NCT" { // nct1 is many a thing
		return end, true
	}
	if end = wordEnd(f.text, end); n > 0 && end-pos <= maxNearMiss {
		return end, f.add(CiteNCT, NearMiss, pos, end, f.text[pos:end])
	}
	if gap := between(f.text, pos+3); n == 0 && gap > 0 && digits(f.text, pos+3+gap) == 8 && !wordAt(f.text, pos+3+gap+8) {
		end = pos + 3 + gap + 8
		return end, f.add(CiteNCT, NearMiss, pos, end, f.text[pos:end])
	}
	return end, true
}

func (f *citationFinder) chemical(pos int) (next int, ok bool) {
	if !hasFold(f.text, pos, "chebi") || wordBefore(f.text, pos) {
		return pos, true
	}
	colon := hasFold(f.text, pos+5, ":")
	at := pos + 5 + between(f.text, pos+5)
	n := digits(f.text, at)
	end := wordEnd(f.text, at+n)
	switch {
	case colon && at == pos+6 && n > 0 && end == at+n:
		return end, f.add(CiteChEBI, InProse, pos, end, f.text[pos:end])
	case end-pos > maxNearMiss || end == at:
	case colon && at == pos+6 || n > 0 && end == at+n: // CHEBI:abc; CHEBI 15377
		return end, f.add(CiteChEBI, NearMiss, pos, end, f.text[pos:end])
	}
	return at, true
}

// maxNearMiss is the longest text, in bytes, that an id of ours was meant to be.
const maxNearMiss = 20

// wordEnd returns where the word ends that pos is in.
func wordEnd(text string, pos int) int {
	for pos < len(text) && wordAt(text, pos) {
		_, n := utf8.DecodeRuneInString(text[pos:])
		pos += n
	}
	return pos
}

// between returns how much stands at pos of what parts a prefix from its number.
func between(text string, pos int) (n int) {
	for n < 2 && pos+n < len(text) && strings.IndexByte(": #_", text[pos+n]) >= 0 {
		n++
	}
	return n
}
