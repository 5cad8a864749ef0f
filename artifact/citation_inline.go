package artifact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// barePMID finds a PMID that is named in prose by its word or by an address of
// PubMed. It returns where the scan goes on.
func (f *citationFinder) barePMID(pos int) (next int, ok bool) {
	if hasFold(f.text, pos, "pubmed") {
		return f.pubMed(pos)
	}
	if !hasFold(f.text, pos, "pmid") || wordBefore(f.text, pos) {
		return pos, true
	}
	at := pos + len("pmid")
	if hasFold(f.text, at, "s") {
		at++
	}
	at = skipPunctuation(f.text, at)
	n := digits(f.text, at)
	if n == 0 || !numberEnds(f.text, at+n) {
		return at, true
	}
	if !f.addInline(pos, at, at+n) {
		return at, false
	}
	for at += n; ; at += n { // more of a list; shorter numbers are years and pages
		after := skipListing(f.text, at)
		n = digits(f.text, after)
		if after == at || n < leastListedDigits || !numberEnds(f.text, after+n) {
			return at, true
		}
		at = after
		if !f.addInline(at, at, at+n) {
			return at, false
		}
	}
}

const leastListedDigits = 5

// maxBetween is how many characters may stand between "PMID" and its number.
const maxBetween = 8

func skipPunctuation(text string, pos int) int {
	for range maxBetween {
		r, n := utf8.DecodeRuneInString(text[pos:])
		if n == 0 || !unicode.IsSpace(r) && !strings.ContainsRune(":#=.*_-–—([：\"'`", r) {
			break
		}
		pos += n
	}
	return pos
}

// skipListing skips what parts two numbers of a list: ", ", "; ", " and ".
func skipListing(text string, pos int) int {
	start := pos
	spaces := func() {
		for range maxBetween {
			r, n := utf8.DecodeRuneInString(text[pos:])
			if n == 0 || !unicode.IsSpace(r) {
				return
			}
			pos += n
		}
	}
	spaces()
	parted := false
	if pos < len(text) && strings.IndexByte(",;&/", text[pos]) >= 0 {
		pos, parted = pos+1, true
		spaces()
	}
	if pos > start && hasFold(text, pos, "and") {
		pos, parted = pos+len("and"), true
		spaces()
	}
	if !parted {
		return start
	}
	return pos
}

// numberEnds reports whether a number is whole that ends at pos: no part of a
// word, a decimal or a DOI.
func numberEnds(text string, pos int) bool {
	if wordAt(text, pos) {
		return false
	}
	return pos+1 >= len(text) || text[pos] != '.' && text[pos] != '/' || digits(text, pos+1) == 0
}

// pubMed finds pubmed.ncbi.nlm.nih.gov/1, ncbi.nlm.nih.gov/pubmed/1,
// /pubmed/?term=1, identifiers.org/pubmed:1 and pubmed:1.
func (f *citationFinder) pubMed(pos int) (next int, ok bool) {
	at := pos + len("pubmed")
	if host := ".ncbi.nlm.nih.gov"; hasFold(f.text, at, host) {
		at += len(host)
	}
	if at == len(f.text) || f.text[at] != '/' && f.text[at] != ':' {
		return at, true
	}
	at++
	if term := "?term="; hasFold(f.text, at, term) {
		at += len(term)
	}
	return f.address(pos, at)
}

// europePMC finds europepmc.org/article/med/1 and europepmc.org/abstract/MED/1.
func (f *citationFinder) europePMC(pos int) (next int, ok bool) {
	if !hasFold(f.text, pos, "/med/") {
		return pos, true
	}
	for _, before := range []string{"europepmc.org/article", "europepmc.org/abstract"} {
		if start := pos - len(before); start >= 0 && hasFold(f.text, start, before) {
			return f.address(start, pos+len("/med/"))
		}
	}
	return pos, true
}

// address adds the PMID at which an address ends, if there is one.
func (f *citationFinder) address(start, at int) (next int, ok bool) {
	n := digits(f.text, at)
	if n == 0 || wordAt(f.text, at+n) {
		return at, true
	}
	return at + n, f.addInline(start, at, at+n)
}

// addInline adds the PMID that stands from at to end, unless a marker's link
// repeats the marker's.
func (f *citationFinder) addInline(start, at, end int) bool {
	if end <= f.link && f.text[at:end] == f.linkID {
		return true
	}
	return f.add(CitePMID, InProse, start, end, f.text[at:end])
}
