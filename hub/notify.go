package hub

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

// logChannel is where the hubs of a database tell each other that the log has
// grown. A notification only wakes: what is new is read from the log, and a poll
// finds what no notification told of.
const logChannel = "scidex_log"

const (
	notifyEvery  = 2 * time.Millisecond // at most one notification in this time
	listenQuiet  = 30 * time.Second     // after which a listener asks whether its connection lives
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// A notifier tells other hubs how far the log goes. It never does so in a write's
// transaction, nor makes one wait: a notification takes a lock on the whole
// database until its transaction is on disk.
type notifier struct {
	every time.Duration
	send  func(context.Context, artifact.Seq) error
	log   *slog.Logger
	last  atomic.Int64  // seq to tell
	due   chan struct{} // holds at most one
}

func newNotifier(log *slog.Logger, send func(context.Context, artifact.Seq) error) *notifier {
	return &notifier{every: notifyEvery, send: send, log: log, due: make(chan struct{}, 1)}
}

// tell notes that the log goes to a seq.
func (n *notifier) tell(seq artifact.Seq) {
	raise(&n.last, seq)
	select {
	case n.due <- struct{}{}:
	default: // one is due already
	}
}

// run sends notifications until ctx ends: at once when the last one is some time
// past, and otherwise one at the end of that time for all commits in it.
func (n *notifier) run(ctx context.Context) error {
	var told artifact.Seq
	wait, failing := reconnectMin, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.due:
		}
		seq := artifact.Seq(n.last.Load())
		if seq <= told {
			continue
		}
		pause := n.every
		if err := n.send(ctx, seq); err == nil {
			told, wait, failing = seq, reconnectMin, false
		} else {
			if !failing && ctx.Err() == nil {
				n.log.WarnContext(ctx, "other hubs cannot be told of commits; their polls find them", "err", err)
			}
			pause, wait, failing = wait, min(2*wait, reconnectMax), true
			n.tell(seq)
		}
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// sleep waits, and reports false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// raise sets a to seq unless it is there or beyond.
func raise(a *atomic.Int64, seq artifact.Seq) {
	for {
		now := a.Load()
		if int64(seq) <= now || a.CompareAndSwap(now, int64(seq)) {
			return
		}
	}
}

// connectApart makes a connection that is not the pool's, named for what it does.
func (h *Hub) connectApart(ctx context.Context, name string) (*pgx.Conn, error) {
	c := h.db.Config().ConnConfig
	c.RuntimeParams["application_name"] = "scidex " + name
	return pgx.ConnectConfig(ctx, c)
}

// notify tells other hubs of this one's commits until ctx ends.
func (h *Hub) notify(ctx context.Context) error {
	var conn *pgx.Conn
	h.pump.others.send = func(ctx context.Context, seq artifact.Seq) (err error) {
		if conn == nil {
			if conn, err = h.connectApart(ctx, "notify"); err != nil {
				return err
			}
		}
		_, err = conn.Exec(ctx, `SELECT pg_notify($1, $2)`, logChannel, strconv.FormatInt(int64(seq), 10))
		if err != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // it is of no more use
			conn = nil
		}
		return err
	}
	err := h.pump.others.run(ctx)
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // nothing is lost with it
	}
	return err
}

// listen wakes the pump for what other hubs commit, until ctx ends. It connects
// again when its connection breaks.
func (h *Hub) listen(ctx context.Context) error {
	wait, failing := reconnectMin, false
	for {
		heard, err := h.listenOnce(ctx)
		if heard {
			wait, failing = reconnectMin, false
		}
		if !failing && ctx.Err() == nil {
			h.log.WarnContext(ctx, "other hubs are not heard for now; the poll finds what they commit", "err", err)
		}
		failing = true
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, reconnectMax)
	}
}

// listenOnce listens on one connection while that lives. It reports whether it
// came to listen at all.
func (h *Hub) listenOnce(ctx context.Context) (heard bool, err error) {
	conn, err := h.connectApart(ctx, "listen")
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // nothing is lost with it
	if _, err := conn.Exec(ctx, `LISTEN `+logChannel); err != nil {
		return false, err
	}
	h.pump.nudge() // for what was committed while nobody listened
	for {
		quiet, cancel := context.WithTimeout(ctx, listenQuiet)
		n, err := conn.WaitForNotification(quiet)
		alone := quiet.Err() != nil
		cancel()
		switch {
		case err == nil:
			h.pump.heard(n.Payload)
		case ctx.Err() != nil || !alone:
			return true, err
		default: // a connection that was cut without a word would be quiet for ever
			alive, cancel := context.WithTimeout(ctx, reconnectMax)
			err := conn.Ping(alive)
			cancel()
			if err != nil {
				return true, err
			}
		}
	}
}
