package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A pump reads the log once for all followers of this process: it checks that
// the log is dense, computes its chain and which row of its scope each follows, encodes each row once into a bounded
// ring and wakes whoever waits. Laggards behind the ring read SQL themselves.
type pump struct {
	db       *pgxpool.Pool
	log      *slog.Logger
	interval time.Duration
	ring     ring
	woken    chan struct{} // holds at most one wake-up
	follow   func([]logRow) error
	reload   func(context.Context) error // reads anew what follow keeps
	known    atomic.Int64                // last seq that is known to be committed
	read     atomic.Pointer[time.Time]   // when the log was last read to its end; nil before run
	offers   offers
	prev     previous // of the rows that come next; run's alone
	others   *notifier
}

const pumpRead = 1000 // rows

func newPump(db *pgxpool.Pool, log *slog.Logger, interval time.Duration, ringBytes int, follow func([]logRow) error) *pump {
	p := &pump{db: db, log: log, interval: interval, follow: follow, woken: make(chan struct{}, 1), others: newNotifier(log, nil)}
	p.ring.limit = ringBytes
	p.ring.changed = make(chan struct{})
	return p
}

// wake makes the pump read now, and those of other hubs soon: this process made a
// commit that ends at last. It never waits.
func (p *pump) wake(last artifact.Seq) {
	p.saw(last)
	p.nudge()
	p.others.tell(last)
}

// heard makes the pump read now when another hub tells of a seq that is new.
func (p *pump) heard(payload string) {
	// A payload that is no number is not a hub's; a read does no harm.
	if seq, err := strconv.ParseInt(payload, 10, 64); err != nil || artifact.Seq(seq) > p.ring.end() {
		p.nudge()
	}
}

// nudge makes the pump read now.
func (p *pump) nudge() {
	select {
	case p.woken <- struct{}{}:
	default: // one is due already
	}
}

// saw notes that the log goes to at least a seq.
func (p *pump) saw(last artifact.Seq) { raise(&p.known, last) }

// head returns the last seq that is known to be committed.
func (p *pump) head() artifact.Seq { return artifact.Seq(p.known.Load()) }

// run pumps until ctx ends. The database's going away is waited out.
func (p *pump) run(ctx context.Context) error {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	var at chainCursor
	started, failing := false, false
	p.wasRead()
	for {
		var err error
		if !started {
			at, err = p.start(ctx)
			started = err == nil
		}
		if started {
			err = p.drain(ctx, &at)
		}
		if err != nil && ctx.Err() == nil && !failing {
			p.log.ErrorContext(ctx, "the log cannot be read", "after", at.seq, "err", err)
		}
		if failing = err != nil; !failing {
			p.wasRead()
		} else if started && p.passed(ctx, at) {
			p.log.WarnContext(ctx, "the log was trimmed past what this hub had read; it begins anew", "after", at.seq)
			if started = p.reload(ctx) != nil; !started {
				p.nudge()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
		case <-tick.C:
		}
	}
}

// stallAfter is how long followers are told nothing of a log that cannot be read,
// before their streams end: a beat would tell them that they have all.
const stallAfter = 10 * time.Second

func (p *pump) wasRead() {
	now := time.Now()
	p.read.Store(&now)
}

// stalled returns an error when the log could not be read for a while.
func (p *pump) stalled() error {
	if read := p.read.Load(); read != nil && time.Since(*read) > stallAfter {
		return &artifact.Error{
			Code: artifact.CodeUnavailable, Reason: artifact.ReasonDatabaseUnreachable, Retryable: true, RetryAfterMS: 1000,
			Message: "the hub cannot read its log",
		}
	}
	return nil
}

// passed reports whether what comes after a position was trimmed.
func (p *pump) passed(ctx context.Context, at chainCursor) bool {
	first, _, err := bounds(ctx, p.db)
	return err == nil && first > at.seq && !at.precedes(first)
}

// start begins at the last checkpoint. A log that was trimmed past it is
// refused: the chain of what is left could not be told.
func (p *pump) start(ctx context.Context) (chainCursor, error) {
	first, last, err := bounds(ctx, p.db)
	if err != nil {
		return chainCursor{}, err
	}
	at, err := nearestCheckpoint(ctx, p.db, last)
	if err != nil {
		return at, err
	}
	if at.seq < first && !at.precedes(first) {
		return at, fmt.Errorf("the log begins at %d, after its last checkpoint at %d", first, at.seq)
	}
	end, err := commitEnd(ctx, p.db, at.seq)
	if err != nil {
		return at, err
	}
	p.prev = previous{at: at.seq}
	p.ring.begin(at, end)
	return at, nil
}

// drain goes to the end of the log, or to the last commit that is known when it
// gets there: another wakes the pump again. It takes what this process wrote and
// reads the rest. When it fails, at is where the ring ends.
func (p *pump) drain(ctx context.Context, at *chainCursor) error {
	for {
		rows := p.offers.take(at.seq)
		offered := rows != nil
		if !offered {
			var err error
			if rows, err = readLog(ctx, p.db, at.seq, pumpRead); err != nil {
				return err
			}
		}
		if len(rows) == 0 {
			return nil
		}
		if err := p.prev.meet(ctx, p.db, rows); err != nil {
			return err
		}
		latest := p.prev.number(rows)
		next := *at
		entries := make([]entry, len(rows))
		var due []chainCursor
		for i := range rows {
			r := &rows[i]
			if err := next.step(r); err != nil {
				return err
			}
			entries[i] = newEntry(r, next.chain)
			if r.Seq%checkpointEvery == 0 {
				due = append(due, next)
			}
		}
		if err := p.follow(rows); err != nil {
			return err
		}
		p.ring.add(entries)
		p.wasRead()
		*at = next
		p.prev.keep(latest, at.seq)
		p.saw(at.seq)
		// Followers do not wait for checkpoints. One that cannot be noted is
		// left out: resumes are checked from the one before.
		for _, c := range due {
			if err := noteCheckpoint(ctx, p.db, c); err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "a checkpoint of the log could not be noted", "seq", c.seq, "err", err)
			}
		}
		cut := !offered && (len(rows) >= pumpRead || sizeOf(rows) >= maxReadBytes)
		if !cut && at.seq >= p.head() {
			return nil
		}
	}
}

// An entry is a row of the log, ready to be sent.
type entry struct {
	seq, commit artifact.Seq
	public      bool
	thing       thing
	ends        bool          // what was said of the thing before is no longer to be told
	chain       artifact.Hash // after it
	wire        []byte        // nil for internal rows
}

// A thing is what a row is of, in its scope.
type thing struct {
	scope, kind, ref string
	revision         int // of a revision; else 0
}

func thingOf(r *logRow) thing {
	t := thing{scope: r.Scope, kind: r.Kind, ref: r.Ref}
	if r.Kind == replicate.KindRevision {
		t.revision = r.Revision
	}
	return t
}

func newEntry(r *logRow, chain artifact.Hash) entry {
	e := entry{seq: r.Seq, commit: r.Commit, public: r.class == replicate.Public, thing: thingOf(r), chain: chain}
	e.ends = r.Op == replicate.Delete || r.Kind == replicate.KindRevision && !r.PrevHash.IsZero()
	if e.public {
		e.wire = r.AppendJSON(nil)
	}
	return e
}

// A ring keeps the latest entries, bounded in bytes. Readers take slices of it
// and share the entries' bytes.
type ring struct {
	mu      sync.RWMutex // guards what follows
	entries []entry      // consecutive, but for jumps of epochs
	base    chainCursor  // position before entries[0]
	head    artifact.Seq // end of the last whole commit
	bytes   int
	limit   int
	changed chan struct{}          // closed and replaced when head moves
	spans   map[artifact.Seq]*span // by the seq that they begin after
	order   []*span                // those of spans and some that were replaced, oldest first
	pages   atomic.Int64           // bytes of the spans' pages; no lock guards it
}

// maxPages bounds the pages that are kept ready, in bytes.
const maxPages = 16 << 20

const entryOverhead = 128 // bytes of an entry beside its wire form

// begin makes the ring empty after a position. The last commit that is whole before
// it ends at a seq: a checkpoint may stand within one.
func (r *ring) begin(at chainCursor, end artifact.Seq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base, r.head, r.entries, r.bytes = at, end, nil, 0
	r.dropSpans()
	r.signal()
}

// end returns the last seq of the last whole commit.
func (r *ring) end() artifact.Seq {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.head
}

// signal wakes all who wait. The caller holds mu.
func (r *ring) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *ring) add(entries []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, entries...)
	if slices.ContainsFunc(entries, func(e entry) bool { return e.ends }) {
		r.withhold(entries)
	}
	for _, e := range entries {
		r.bytes += len(e.wire) + entryOverhead
		if e.seq == e.commit {
			r.head = e.seq
		}
	}
	drop := 0
	for r.bytes > r.limit && drop < len(r.entries)-1 {
		r.bytes -= len(r.entries[drop].wire) + entryOverhead
		drop++
	}
	if drop > 0 {
		r.base = chainCursor{r.entries[drop-1].seq, r.entries[drop-1].chain}
		// What is dropped is freed when append next needs a larger array and
		// copies only what is left: copying here would cost each commit the
		// length of the ring.
		r.entries = r.entries[drop:]
	}
	r.signal()
}

// withhold takes out of the ring what rows among the latest end: a thing that
// was moved away or redacted. Readers keep the slices that they have. The caller
// holds mu.
func (r *ring) withhold(latest []entry) {
	ended := make(map[thing]artifact.Seq)
	for _, e := range latest {
		if !e.ends {
			continue
		}
		ended[e.thing] = e.seq
		switch e.thing.kind {
		case replicate.KindRevision: // the head has the version's title
			ended[thing{scope: e.thing.scope, kind: replicate.KindArtifact, ref: e.thing.ref}] = e.seq
			fallthrough
		case replicate.KindArtifact: // and its vector what it means
			ended[thing{scope: e.thing.scope, kind: replicate.KindVector, ref: e.thing.ref}] = e.seq
		}
	}
	kept := make([]entry, len(r.entries))
	for i, e := range r.entries {
		if until, ok := ended[e.thing]; ok && e.seq < until && e.wire != nil {
			before := len(e.wire)
			e.wire = withheld(e.wire)
			if i < len(kept)-len(latest) { // its bytes are counted already
				r.bytes += len(e.wire) - before
			}
		}
		kept[i] = e
	}
	copy(latest, kept[len(kept)-len(latest):])
	r.entries = kept
	r.dropSpans()
}

// dropSpans drops all ready pages. The caller holds mu.
func (r *ring) dropSpans() {
	for _, s := range r.order {
		s.drop()
	}
	r.spans, r.order = nil, nil
}

// span returns what the ring holds after a seq, nil at its head, and what to wait
// on then. It reports false when the ring does not reach back to the seq.
func (r *ring) span(seq artifact.Seq) (s *span, changed <-chan struct{}, ok bool) {
	r.mu.RLock()
	s, changed, ok = r.spanAt(seq), r.changed, seq >= r.base.seq && seq <= r.head
	done := !ok || s != nil || seq == r.head
	r.mu.RUnlock()
	if done {
		return s, changed, ok
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq < r.base.seq { // dropped meanwhile
		return nil, r.changed, false
	}
	if s := r.spanAt(seq); s != nil {
		return s, r.changed, true
	}
	for len(r.order) > 0 && r.pages.Load() > maxPages {
		old := r.order[0]
		old.drop()
		if r.spans[old.from] == old {
			delete(r.spans, old.from)
		}
		r.order[0] = nil
		r.order = r.order[1:]
	}
	s = newSpan(seq, r.stretch(seq), r.head, &r.pages)
	if r.spans == nil {
		r.spans = make(map[artifact.Seq]*span)
	}
	r.spans[seq] = s
	r.order = append(r.order, s)
	return s, r.changed, true
}

// spanAt returns a span that was made, unless much has come to the ring since: then
// a follower is better served with one page than with many. The caller holds mu.
func (r *ring) spanAt(seq artifact.Seq) *span {
	s := r.spans[seq]
	if s == nil || seq < r.base.seq || s.to == r.head || 2*len(s.entries) >= len(r.stretch(seq)) {
		return s
	}
	return nil
}

// stretch returns the entries that a span after a seq has: all up to the head, or
// up to a place where those of other followers end too, so that laggards come to
// read the same pages. The caller holds mu; the seq is before the head.
func (r *ring) stretch(seq artifact.Seq) []entry {
	from, to := r.find(seq), r.find(r.head)
	if to-from <= replicate.MaxPageRows {
		return r.entries[from:to:to]
	}
	to = r.find(seq - seq%replicate.MaxPageRows + replicate.MaxPageRows)
	for i := to; i > from; i-- {
		if e := &r.entries[i-1]; e.seq == e.commit {
			return r.entries[from:i:i]
		}
	}
	to = from + replicate.MaxPageRows // within a large commit
	return r.entries[from:to:to]
}

// withheld returns a row's wire form without what it says of its thing.
func withheld(wire []byte) []byte {
	var row replicate.Row
	if json.Unmarshal(wire, &row) != nil { // it was written by Row itself
		return wire
	}
	row.Data, row.Content = nil, nil
	return row.AppendJSON(nil)
}

// after returns the entries of whole commits after a seq, and what to wait on
// when there are none. It reports false when the ring no longer, or not yet,
// reaches back to the seq.
func (r *ring) after(seq artifact.Seq) (entries []entry, head artifact.Seq, changed <-chan struct{}, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if seq < r.base.seq || seq > r.head {
		return nil, r.head, r.changed, false
	}
	from, to := r.find(seq), r.find(r.head)
	return r.entries[from:to:to], r.head, r.changed, true
}

// find returns how many entries stand at or before a seq. It searches, since
// seqs jump where an epoch begins.
func (r *ring) find(seq artifact.Seq) int {
	return sort.Search(len(r.entries), func(i int) bool { return r.entries[i].seq > seq })
}

// chainAt returns the chain at a seq, if the ring has it.
func (r *ring) chainAt(seq artifact.Seq) (artifact.Hash, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if seq == r.base.seq {
		return r.base.chain, true
	}
	if i := r.find(seq) - 1; i >= 0 && r.entries[i].seq == seq {
		return r.entries[i].chain, true
	}
	return artifact.Hash{}, false
}
