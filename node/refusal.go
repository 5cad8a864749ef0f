package node

import (
	"errors"
	"fmt"

	"github.com/mattn/go-sqlite3"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A refusalError reports a change that the replica cannot take as it came: it is not
// what its hash says, or a row stands in its way that should not be there.
type refusalError struct {
	seq artifact.Seq
	err error
}

func (e *refusalError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *refusalError) Unwrap() error { return e.err }

// refused marks an error of applying a row as one that is tried again, seldom: the
// hub's row may be set right, or what stands in the replica's way is mended. Reads
// go on from what is there.
func refused(r *replicate.Row, err error) error {
	err = fmt.Errorf("apply change %d, %s %s: %w", r.Seq, r.Kind, r.Ref, err)
	failed, disk := errors.AsType[sqlite3.Error](err)
	_, gap := errors.AsType[*replicate.GapError](err)
	if gap || disk && failed.Code != sqlite3.ErrConstraint {
		return err
	}
	return &replicate.TransientError{
		Err: &refusalError{r.Seq, err}, Seldom: true,
		Next: "the node checks itself and asks again; if it stays, the hub's operator must run scidex hub verify",
	}
}

// meetRefusal has the node check itself once for each change that it cannot take.
func (n *Node) meetRefusal(err error) {
	if e, ok := errors.AsType[*refusalError](err); ok && n.checks.refused.Swap(int64(e.seq)) != int64(e.seq) {
		select {
		case n.checks.now <- struct{}{}:
		default:
		}
	}
}
