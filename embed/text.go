package embed

import (
	"crypto/sha256"
	"strings"
	"unicode/utf8"
)

// MaxText bounds what of an artifact is sent, in bytes: about what models read of one
// text.
const MaxText = 8 << 10

// Text returns what is sent of some texts of an artifact, the most telling first.
func Text(texts []string) string {
	var b strings.Builder
	for _, t := range texts {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if room := MaxText - b.Len(); len(t) > room {
			for room > 0 && !utf8.RuneStart(t[room]) {
				room--
			}
			b.WriteString(t[:max(room, 0)])
			break
		}
		b.WriteString(t)
	}
	return b.String()
}

// Hash tells texts apart.
func Hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
