package hub

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

// logChannel is where the hubs of a database tell each other that the log has
// grown. A notification only wakes: what is new is read from the log, and a poll
// finds what no notification told of.
const logChannel = "scidex_log"

const (
	notifyEvery  = 2 * time.Millisecond // at most one notification in this time
	greetEvery   = 10 * time.Second     // in which a hub that listens says so
	greetFor     = 35 * time.Second     // how long it is believed
	listenQuiet  = 30 * time.Second     // after which a listener asks whether its connection lives
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// What a hub says of itself on the channel, before its name. All else is a seq.
const (
	greetNew  = "new "  // it listens from now on, and asks who else does
	greetHere = "here " // it listens
)

// A notifier tells other hubs how far the log goes. It never does so in a write's
// transaction, nor makes one wait: a notification takes a lock on the whole
// database until its transaction is on disk. While no other hub listens it tells
// nobody, since a lone writer would pay as much for that as for a statement.
type notifier struct {
	name     string // of this hub among others
	every    time.Duration
	send     func(ctx context.Context, payload string) error
	log      *slog.Logger
	last     atomic.Int64           // seq to tell
	again    atomic.Bool            // it is to be told though it was
	greeting atomic.Pointer[string] // to be said; nil for none
	until    atomic.Int64           // when those who listen will be forgotten, in nanoseconds since 1970
	due      chan struct{}          // holds at most one
}

func newNotifier(log *slog.Logger, send func(context.Context, string) error) *notifier {
	return &notifier{name: uuid.NewString(), every: notifyEvery, send: send, log: log, due: make(chan struct{}, 1)}
}

// tell notes that the log goes to a seq.
func (n *notifier) tell(seq artifact.Seq) {
	raise(&n.last, seq)
	if n.heeded() {
		n.signal()
	}
}

// greet says that this hub listens.
func (n *notifier) greet(how string) {
	n.greeting.Store(&how)
	n.signal()
}

func (n *notifier) signal() {
	select {
	case n.due <- struct{}{}:
	default: // one is due already
	}
}

// heeded reports whether another hub listens.
func (n *notifier) heeded() bool { return time.Now().UnixNano() < n.until.Load() }

// met takes in what another hub says of itself, and reports whether a payload is
// that. One that has just begun to listen is answered, and told how far the log
// goes: of what was committed a moment ago nobody told it.
func (n *notifier) met(payload string) bool {
	name, asks := strings.CutPrefix(payload, greetNew)
	if !asks {
		var here bool
		if name, here = strings.CutPrefix(payload, greetHere); !here {
			return false
		}
	}
	if name == n.name {
		return true
	}
	n.until.Store(time.Now().Add(greetFor).UnixNano())
	if asks {
		n.again.Store(true)
		n.greet(greetHere)
	}
	return true
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
		greeting, again, seq := n.greeting.Swap(nil), n.again.Swap(false), artifact.Seq(n.last.Load())
		var err error
		if greeting != nil {
			err = n.send(ctx, *greeting+n.name)
		}
		due := n.heeded() && (seq > told || again)
		if greeting == nil && !due {
			continue
		}
		if err == nil && due {
			err = n.send(ctx, strconv.FormatInt(int64(seq), 10))
		}
		pause := n.every
		if err == nil {
			wait, failing = reconnectMin, false
			if due {
				told = seq
			}
		} else {
			if !failing && ctx.Err() == nil {
				n.log.WarnContext(ctx, "other hubs cannot be told of commits; their polls find them", "err", err)
			}
			pause, wait, failing = wait, min(2*wait, reconnectMax), true
			if greeting != nil {
				n.greeting.CompareAndSwap(nil, greeting)
			}
			n.again.Store(n.again.Load() || due)
			n.signal()
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

// every calls f in every interval until stop is called.
func every(interval time.Duration, f func()) (stop func()) {
	tick, done := time.NewTicker(interval), make(chan struct{})
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() { close(done) }
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
	h.pump.others.send = func(ctx context.Context, payload string) (err error) {
		if conn == nil {
			if conn, err = h.connectApart(ctx, "notify"); err != nil {
				return err
			}
		}
		_, err = conn.Exec(ctx, `SELECT pg_notify($1, $2)`, logChannel, payload)
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
	h.pump.others.greet(greetNew)
	stop := every(greetEvery, func() { h.pump.others.greet(greetHere) })
	defer stop()
	for {
		quiet, cancel := context.WithTimeout(ctx, listenQuiet)
		n, err := conn.WaitForNotification(quiet)
		alone := quiet.Err() != nil
		cancel()
		switch {
		case err == nil:
			if !h.pump.others.met(n.Payload) {
				h.pump.heard(n.Payload)
			}
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
