package artifact_test

import (
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func TestIsBlank(t *testing.T) {
	for _, text := range []string{"", " \n\t", "\u200b\u200d\ufeff", "\u00a0\u2028", "\u3164\u2800", "\u202e\ufe0f", "\u0001", "\u00ad\u034f"} {
		if !artifact.IsBlank(text) {
			t.Errorf("IsBlank(%+q) = false", text)
		}
	}
	for _, text := range []string{"x", "\u200b.", "é", "e\u0301", "👩\u200d🔬", "𝒙", "\ufffd"} {
		if artifact.IsBlank(text) {
			t.Errorf("IsBlank(%+q) = true", text)
		}
	}
}
