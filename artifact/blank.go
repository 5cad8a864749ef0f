package artifact

import "unicode"

// brailleBlank is a letter of braille without dots.
const brailleBlank = '\u2800'

// IsBlank reports whether a text has nothing that a reader sees: it is empty or of
// spaces, control characters and what Unicode has displays ignore.
func IsBlank(text string) bool {
	for _, r := range text {
		if !unicode.IsSpace(r) && r != brailleBlank && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return false
		}
	}
	return true
}
