package hub

import (
	"testing"
	"testing/synctest"

	"github.com/scidex-ai/substrate/artifact"
)

// TestSoloBusy checks that a write which cannot be run alone for long is answered.
func TestSoloBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Hub{solo: make(chan struct{})}
		if e := artifact.AsError(h.alone(t.Context(), nil)); e.Code != artifact.CodeUnavailable || e.Reason != artifact.ReasonBusy {
			t.Errorf("err = %v, want %s", e, artifact.ReasonBusy)
		}
	})
}
