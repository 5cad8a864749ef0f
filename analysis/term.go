package analysis

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
)

// MaxTerm bounds a term, in bytes. What is longer is cut.
const MaxTerm = 64

// leastStemmed is the length of the shortest words that are stemmed: shorter ones
// are symbols as often as words (ALS, APOE), and lose a plural's s at most.
const leastStemmed = 5

// termOf returns the term of a folded word.
func termOf(word string) string {
	word = cut(word)
	switch {
	case strings.ContainsFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }):
		return word
	case len(word) >= leastStemmed:
		return stem(word)
	case len(word) == leastStemmed-1 && word[3] == 's' && !strings.ContainsAny(word[2:3], "sui"):
		return word[:3]
	}
	return word
}

func cut(word string) string {
	if len(word) <= MaxTerm {
		return word
	}
	n := MaxTerm
	for !utf8.RuneStart(word[n]) {
		n--
	}
	return word[:n]
}

// A stemmed is a word in lower case and its term.
type stemmed struct{ word, term string }

// stems holds terms that were made before: those of common words are asked for all
// the time, and the stemmer takes longer than all else. Each word has one place; the
// last one there stays.
var (
	stems [1 << 14]atomic.Pointer[stemmed]
	seed  = maphash.MakeSeed()
)

// known returns a word of at most MaxTerm ASCII letters in lower case, with its term.
func known(word []byte) *stemmed {
	place := &stems[maphash.Bytes(seed, word)%uint64(len(stems))]
	if k := place.Load(); k != nil && k.word == string(word) {
		return k
	}
	made := &stemmed{word: string(word)}
	made.term = termOf(made.word)
	place.Store(made)
	return made
}

// stem returns the English stem (Snowball, "Porter 2") of a word in lower case.
func stem(word string) string {
	env := snowballstem.NewEnv(word)
	english.Stem(env)
	if env.Current() == "" {
		return word
	}
	return strings.Clone(env.Current())
}
