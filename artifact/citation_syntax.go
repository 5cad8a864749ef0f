package artifact

import (
	"encoding/json"
	"regexp"
	"strings"
)

// A citationSyntax says how the ids of one kind are written.
type citationSyntax struct {
	name     string // for people
	says     string
	pattern  *regexp.Regexp
	maxBytes int
	prefixes []string               // in lower case; often written before an id, and no part of it
	mend     func(id string) string // puts common slips right
}

// maxDOI is such that "DOI:" and a DOI make an id.
const maxDOI = 256 - len("DOI:")

var citationSyntaxes = map[CitationKind]*citationSyntax{
	CitePMID: {
		name: "a PMID", says: "a PMID is 1 to 8 digits and does not begin with 0",
		pattern: regexp.MustCompile(`\A[1-9][0-9]{0,7}\z`), maxBytes: 8,
		prefixes: []string{"pmid:", "pmid", "https://pubmed.ncbi.nlm.nih.gov/", "pubmed.ncbi.nlm.nih.gov/"},
		mend:     func(s string) string { return strings.TrimLeft(strings.TrimRight(s, "/."), "0") },
	},
	// ISO 26324, with the printable ASCII that registrants have used; ids hold no @.
	CiteDOI: {
		name: "a DOI", says: "a DOI is 10., a registrant of 4 to 9 digits, / and a suffix of printable ASCII without space, quotes, braces or @, of 252 bytes in all",
		pattern: regexp.MustCompile(`\A10\.[0-9]{4,9}(?:\.[0-9]+)*/[!#$%&'()*+,\-./0-9:;<=>?A-Z\[\]_a-z~]+\z`), maxBytes: maxDOI,
		prefixes: []string{"https://doi.org/", "http://doi.org/", "https://dx.doi.org/", "http://dx.doi.org/", "doi.org/", "doi:"},
		mend:     func(s string) string { return strings.TrimRight(s, ".,;/") },
	},
	CiteNCT: {
		name: "an NCT number", says: "an NCT number is NCT and 8 digits",
		pattern: regexp.MustCompile(`\ANCT[0-9]{8}\z`), maxBytes: 11,
		prefixes: []string{"https://clinicaltrials.gov/study/", "https://clinicaltrials.gov/ct2/show/"},
		mend: func(s string) string {
			return "NCT" + strings.TrimLeft(strings.TrimPrefix(strings.ToUpper(s), "NCT"), ": #_")
		},
	},
	// HGNC's guidelines (Bruford et al., Nat Genet 2020): capitals, digits and
	// hyphens, but for the orf of open reading frames.
	CiteGene: {
		name: "a gene symbol", says: "an HGNC symbol is capitals, digits and single hyphens, and begins with a capital, as TREM2, HLA-A or C9orf72",
		pattern:  regexp.MustCompile(`\A(?:` + openFrame + `|[A-Z][A-Z0-9]*)(?:-(?:` + openFrame + `|[A-Z0-9]+))*\z`),
		maxBytes: maxSymbol,
		prefixes: []string{"hgnc:", "gene:"},
		mend: func(s string) string {
			return shoutedFrame.ReplaceAllString(strings.ToUpper(s), "C${1}orf$2")
		},
	},
	CiteChEBI: {
		name: "a ChEBI id", says: "a ChEBI id is CHEBI: and 1 to 7 digits that do not begin with 0",
		pattern: regexp.MustCompile(`\ACHEBI:[1-9][0-9]{0,6}\z`), maxBytes: 13,
		mend: func(s string) string {
			return "CHEBI:" + strings.TrimLeft(strings.TrimPrefix(strings.ToUpper(s), "CHEBI"), ": #_0")
		},
	},
}

// maxSymbol is twice the longest symbol that HGNC has approved, about.
const maxSymbol = 32

const openFrame = `C(?:[0-9]{1,2}|X|Y)orf[0-9]+[A-Z0-9]*`

var shoutedFrame = regexp.MustCompile(`\bC([0-9]{1,2}|X|Y)ORF([0-9])`)

// Normalize returns the one form of an id of this kind, under which it is looked
// up: a DOI's case means nothing, and it is lower here. ok is false when s is
// not well-formed; that it is tells nothing of whether such a thing exists.
func (k CitationKind) Normalize(s string) (id string, ok bool) {
	syntax := citationSyntaxes[k]
	if syntax == nil || len(s) > syntax.maxBytes || !syntax.pattern.MatchString(s) {
		return "", false
	}
	if k == CiteDOI {
		s = strings.ToLower(s)
	}
	return s, true
}

// Meant is as Normalize, and takes an id too that is written as a URL, or with a
// slip that is common.
func (k CitationKind) Meant(s string) (id string, ok bool) {
	if id, ok := k.Normalize(s); ok {
		return id, true
	}
	return k.Normalize(k.mend(s))
}

// mended returns the well-formed id that a malformed one was probably meant to
// be, as JSON, or nil.
func (k CitationKind) mended(s string) json.RawMessage {
	s = k.mend(s)
	if _, ok := k.Normalize(s); !ok {
		return nil
	}
	return Received(s)
}

// mend takes off what is often written before an id, and puts common slips right.
func (k CitationKind) mend(s string) string {
	syntax := citationSyntaxes[k]
	if syntax == nil || len(s) > 2*maxDOI {
		return ""
	}
	s = strings.TrimSpace(s)
	for _, prefix := range syntax.prefixes {
		if hasFold(s, 0, prefix) {
			s = strings.TrimSpace(s[len(prefix):])
			break
		}
	}
	return syntax.mend(s)
}
