package query

import (
	"fmt"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// contentPrefix begins the names of fields that are JSON pointers into the content.
const contentPrefix = "/content"

// A pointer is a JSON pointer into a content.
type pointer struct {
	text   string // such as /target_gene
	tokens []string
}

// parsePointer reads a pointer as filters and sorts name it, from /content on.
func parsePointer(name string) (p pointer, err error) {
	p.text = strings.TrimPrefix(name, contentPrefix)
	if p.tokens, err = artifact.ParsePointer(p.text); err != nil {
		return p, err
	}
	indices := 0
	for _, t := range p.tokens {
		switch isIndex(t) {
		case index:
			indices++
		case almostIndex:
			return p, fmt.Errorf("a place in an array is written 0, 1, 2 …, and %q is none", t)
		case noIndex:
		}
	}
	switch {
	case len(p.tokens) == 0:
		err = fmt.Errorf("it names the whole content: name a member of it, such as %s/year", contentPrefix)
	case len(p.text) > maxPointer:
		err = fmt.Errorf("a pointer is at most %d bytes", maxPointer)
	case len(p.tokens) > MaxDepth*2:
		err = fmt.Errorf("a pointer has at most %d steps", MaxDepth*2)
	case indices > maxIndices:
		err = fmt.Errorf("at most %d steps of a pointer are numbers", maxIndices)
	case strings.ContainsRune(p.text, 0):
		err = fmt.Errorf("a pointer holds no U+0000")
	}
	return p, err
}

type indexness int

const (
	noIndex     indexness = iota
	index                 // a place in an array, or a member of that name
	almostIndex           // PostgreSQL takes it for a place, and RFC 6901 does not
)

func isIndex(token string) indexness {
	trimmed := strings.TrimLeft(token, " \t\n\v\f\r")
	digits := strings.TrimLeft(trimmed, "+-")
	if digits == "" || len(trimmed)-len(digits) > 1 || strings.Trim(digits, "0123456789") != "" {
		return noIndex
	}
	if len(digits) == len(token) && (digits == "0" || digits[0] != '0') && len(digits) <= 9 {
		return index
	}
	return almostIndex
}
