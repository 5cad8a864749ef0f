package verb_test

import (
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// FuzzDecodeCursor checks that cursors come back as they were, and that no other
// text is taken for one.
func FuzzDecodeCursor(f *testing.F) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	f.Add(verb.EncodeCursor(verb.ListCursor{At: at, Type: "paper", ID: "p1"}, "paper"), "paper")
	f.Add(verb.EncodeCursor(verb.ListCursor{At: time.UnixMilli(-1), Type: "a", ID: "~"}, ""), "")
	f.Add(verb.EncodeCursor(verb.ListCursor{At: at, Type: "paper", ID: "p1"}, "paper"), "gene")
	f.Add("e30", "")
	f.Fuzz(func(t *testing.T, s, filter string) {
		c, err := verb.DecodeCursor(s, filter)
		if err != nil {
			if e := artifact.AsError(err); e.Reason != artifact.ReasonInvalidCursor || e.Code != artifact.CodeValidationFailed {
				t.Errorf("DecodeCursor(%q) = %v, want invalid_cursor", s, err)
			}
			return
		}
		again, err := verb.DecodeCursor(verb.EncodeCursor(c, filter), filter)
		if err != nil || again != c {
			t.Errorf("DecodeCursor(EncodeCursor(%+v)) = %+v, %v", c, again, err)
		}
		if _, err := verb.DecodeCursor(s, filter+"x"); err == nil {
			t.Errorf("DecodeCursor takes %q with another filter", s)
		}
	})
}
