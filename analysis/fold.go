package analysis

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A class says how a character takes part in a word.
type class uint8

const (
	other  class = iota // ends a word
	letter              // Latin or of another alphabet
	digit
	greek  // a letter that has a name
	single // a word by itself: Chinese, Japanese
	hyphen // joins what stands on both sides of it
	slash
	dot        // within a number
	apostrophe // before a final s
	silent     // as if it were not there
)

// letters that decomposition leaves alone, as they are commonly written without.
var plainly = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ħ': "h", 'ŋ': "n", 'ŧ': "t", 'ſ': "s",
}

// greekNames names the letters of the Greek alphabet; the second form is the Latin
// letter that people write for one, such as NFkB, where they do.
var greekNames = map[rune][2]string{
	'α': {"alpha", "a"}, 'β': {"beta", "b"}, 'γ': {"gamma", "g"}, 'δ': {"delta", "d"}, 'ε': {"epsilon", "e"}, 'ζ': {"zeta"},
	'η': {"eta"}, 'θ': {"theta"}, 'ι': {"iota"}, 'κ': {"kappa", "k"}, 'λ': {"lambda"}, 'μ': {"mu", "u"},
	'ν': {"nu"}, 'ξ': {"xi"}, 'ο': {"omicron"}, 'π': {"pi"}, 'ρ': {"rho"}, 'σ': {"sigma"},
	'τ': {"tau"}, 'υ': {"upsilon"}, 'φ': {"phi"}, 'χ': {"chi"}, 'ψ': {"psi"}, 'ω': {"omega"},
}

var greekByName = func() map[string]rune {
	m := make(map[string]rune, len(greekNames))
	for r, names := range greekNames {
		m[names[0]] = r
	}
	return m
}()

var asciiClass = func() (t [utf8.RuneSelf]class) {
	for c := '0'; c <= '9'; c++ {
		t[c] = digit
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = letter, letter
	}
	t['-'], t['_'], t['/'], t['.'], t['\''] = hyphen, hyphen, slash, dot, apostrophe
	return t
}()

// classOf returns the class of a character that is in its folded form.
func classOf(r rune) class {
	if r < utf8.RuneSelf {
		return asciiClass[r]
	}
	switch {
	case r == '‐', r == '‑', r == '‒', r == '–', r == '−':
		return hyphen
	case r == '’', r == 'ʼ', r == '′':
		return apostrophe
	case r == '⁄':
		return slash
	case r == 0xad, r >= 0x200b && r <= 0x200d, r == 0x2060, r == 0xfeff, isAccent(r):
		return silent
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
		return single
	}
	if _, named := greekNames[r]; named {
		return greek
	}
	switch {
	case unicode.Is(unicode.Nd, r):
		return digit
	case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r):
		return letter
	}
	return other
}

// isAccent reports whether r is a mark that is left out. Marks of scripts in which
// they are vowels stay.
func isAccent(r rune) bool {
	return r >= 0x300 && r <= 0x36f || r >= 0x1ab0 && r <= 0x1aff || r >= 0x1dc0 && r <= 0x1dff || r >= 0x20d0 && r <= 0x20ff || r >= 0xfe00 && r <= 0xfe0f
}

// fold appends the characters that the first one of s stands for: decomposed (NFKD),
// without accents, in lower case.
func fold(dst []rune, s string, r rune) []rune {
	if r == '∆' { // the increment, which people take for the letter
		return append(dst, 'δ')
	}
	add := func(r rune) {
		r = unicode.ToLower(r)
		if r == 'ς' {
			r = 'σ'
		}
		if plain, ok := plainly[r]; ok {
			for _, p := range plain {
				dst = append(dst, p)
			}
			return
		}
		dst = append(dst, r)
	}
	if d := norm.NFKD.PropertiesString(s).Decomposition(); d != nil {
		for len(d) > 0 {
			r, n := utf8.DecodeRune(d)
			d = d[n:]
			add(r)
		}
		return dst
	}
	add(r)
	return dst
}
