// Package replicate carries the hub's change feed to those who keep copies: its
// rows and frames, the handler that serves it, the client that reads it and the
// follower that drives a sink from it.
//
// Read row.go for what is on the wire, then frame.go, handler.go and client.go
// for the stream, and follower.go for the loop. A node's store and a publisher
// are both a [Sink]; one [Follower] drives either.
package replicate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// A Position is how far a sink has come: all changes up to Seq are in it.
type Position struct {
	HubID string // the network's hub; "" before the first hello
	Epoch int    // rises when the hub is restored from a backup; 0 before the first hello
	Seq   artifact.Seq
	Chain artifact.Hash // the log's chain at Seq; zero when not known
}

// Token returns the position as "epoch:seq", the form of consistency tokens and
// cursors.
func (p Position) Token() string { return Token(p.Epoch, p.Seq) }

// EpochJump is how far a restore moves the log's seq, so that no seq of the epoch
// before is used again.
const EpochJump = 1 << 32

// Token returns an epoch and a seq in the form of consistency tokens and cursors.
func Token(epoch int, seq artifact.Seq) string {
	return strconv.Itoa(epoch) + ":" + strconv.FormatInt(int64(seq), 10)
}

// ParseToken reads "epoch:seq", or a bare seq, for which epoch is 0. Its error
// is an [*artifact.Error] with the reason invalid_cursor.
func ParseToken(s string) (epoch int, seq artifact.Seq, err error) {
	e, n, both := strings.Cut(s, ":")
	if !both {
		e, n = "0", s
	}
	epoch, errEpoch := strconv.Atoi(e)
	value, errSeq := strconv.ParseInt(n, 10, 64)
	if errEpoch != nil || errSeq != nil || epoch < 0 || value < 0 {
		return 0, 0, &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonInvalidCursor,
			Message: fmt.Sprintf("%.40q is no position in the log: it is epoch:seq", s),
		}
	}
	return epoch, artifact.Seq(value), nil
}

// A Source streams the log to one follower.
type Source interface {
	// Follow passes every frame after a position to handle, in order, until ctx
	// ends, the stream breaks or handle fails, and returns why. An
	// [*artifact.Error] with a reason cursor_* is final for this position.
	Follow(ctx context.Context, from Position, handle func(Frame) error) error
}

// A Sink keeps a copy.
type Sink interface {
	// Position returns the position of the last commit applied.
	Position(ctx context.Context) (Position, error)

	// Hello tells what the source is, at the start of each stream. An error
	// refuses it, and ends the follower.
	Hello(ctx context.Context, h Hello) error

	// Apply stores rows with the position they lead to, in one transaction. When
	// b.Partial, more rows of the same commit follow and nothing may be visible
	// until the last of them. Rows at or before the position are ignored. A row
	// that does not follow the sink's [Trail] is refused with a [*GapError].
	Apply(ctx context.Context, b Batch) error

	// Abort forgets the rows of a commit that did not come to its end.
	Abort(ctx context.Context)
}

// A Batch is what a sink applies: rows of whole commits, or a part of one.
type Batch struct {
	Rows    []Row
	To      artifact.Seq
	Chain   artifact.Hash
	Partial bool
}
