package artifact

import "strings"

// markerKinds are the words that begin a marker or an item in one.
var markerKinds = []struct {
	word string
	kind CitationKind
}{{"pmid", CitePMID}, {"doi", CiteDOI}, {"hgnc", CiteGene}}

// markerWord returns the word that begins a marker of this kind.
func markerWord(kind CitationKind) string {
	for _, m := range markerKinds {
		if m.kind == kind {
			return strings.ToUpper(m.word)
		}
	}
	return string(kind)
}

// markerKind returns the kind that stands at pos with its colon, and where what
// it names begins.
func markerKind(text string, pos int) (kind CitationKind, after int, ok bool) {
	for _, m := range markerKinds {
		if hasFold(text, pos, m.word) {
			after = skipBlank(text, pos+len(m.word))
			if after < len(text) && text[after] == ':' {
				return m.kind, after + 1, true
			}
		}
	}
	return "", pos, false
}

// skipBlank skips few blanks only: markers that do not close are scanned again.
func skipBlank(text string, pos int) int {
	for end := min(pos+4, len(text)); pos < end && (text[pos] == ' ' || text[pos] == '\t'); {
		pos++
	}
	return pos
}

// marker finds the citations of a marker that begins at pos. It returns where
// the scan goes on.
func (f *citationFinder) marker(pos int) (next int, ok bool) {
	kind, start, is := markerKind(f.text, skipBlank(f.text, pos+1))
	if !is {
		return pos, true
	}
	end, closed := markerEnd(f.text, start)
	if !closed {
		return pos, true
	}
	first := len(f.found)
	for at := start; at <= end; {
		stop := itemEnd(f.text[:end], at, kind)
		from, to := trimBlank(f.text, at, stop)
		if k, after, named := markerKind(f.text[:to], from); named && at > start {
			kind = k
			stop = itemEnd(f.text[:end], after, kind)
			from, to = trimBlank(f.text, after, stop)
		}
		at = stop + 1
		item := f.text[from:to]
		if kind == CiteGene && item != "" && digits(item, 0) == len(item) {
			continue
		}
		if !f.add(kind, InMarker, from, to, item) {
			return end, false
		}
	}
	if len(f.found) == first+1 && f.found[first].Kind == CitePMID {
		f.link, f.linkID = linkEnd(f.text, end+1), f.found[first].ID
	}
	return end + 1, true
}

// markerEnd returns where the marker's closing bracket stands. It looks no
// further than the next marker's beginning, so that all looks are linear.
func markerEnd(text string, pos int) (end int, ok bool) {
	depth := 0
	for ; pos < len(text) && text[pos] != '\n' && text[pos] != '\r'; pos++ {
		switch text[pos] {
		case '[':
			if _, _, nested := markerKind(text, skipBlank(text, pos+1)); nested {
				return 0, false
			}
			depth++
		case ']':
			if depth == 0 {
				return pos, true
			}
			depth--
		}
	}
	return 0, false
}

// itemEnd returns where the item that begins at pos ends: at a comma or
// semicolon, or at the end of the text.
func itemEnd(text string, pos int, kind CitationKind) int {
	for ; pos < len(text); pos++ {
		if b := text[pos]; b != ',' && b != ';' {
			continue
		}
		if kind != CiteDOI || pos+1 == len(text) || text[pos+1] == ' ' || text[pos+1] == '\t' {
			break
		}
	}
	return pos
}

func trimBlank(text string, start, end int) (from, to int) {
	for start < end && (text[start] == ' ' || text[start] == '\t') {
		start++
	}
	for start < end && (text[end-1] == ' ' || text[end-1] == '\t') {
		end--
	}
	return start, end
}

// linkEnd returns where the Markdown link target that begins at pos ends, 0 when
// there is none.
func linkEnd(text string, pos int) int {
	if pos >= len(text) || text[pos] != '(' {
		return 0
	}
	if n := strings.IndexAny(text[pos:], ") \t\r\n["); n > 0 && text[pos+n] == ')' {
		return pos + n
	}
	return 0
}
