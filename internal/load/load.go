// Package load sends JSONL of artifacts to a hub, through the verb batch. Start
// with this file; record.go says what a line may hold, send.go how a batch gets
// to the hub once, and judge.go what its answer means for each line.
package load

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// Config is what a load needs. The zero value of every optional field is a
// working default. Its functions are called one at a time.
type Config struct {
	// Invoker runs the verb batch: a [verb.Client], or a hub's [verb.Registry],
	// for which the context carries the caller. Required.
	Invoker verb.Invoker

	// Inputs are read in order, each of them twice or more.
	Inputs []Input

	// Import marks an import by an admin, whose signals keep the voters that
	// the lines name.
	Import bool

	// Parallel is how many batches are under way at a time. The default is 2.
	Parallel int

	// From is the first line to load, counted over all inputs from 1. Lines
	// before it are not even checked.
	From int64

	// RetryFor is how long a batch is tried again while the hub is away. The
	// default is two minutes; less than zero means not at all.
	RetryFor time.Duration

	// Progress, when set, is told how many records are done and how many there
	// are, by the best estimate until all lines have been read once.
	Progress func(done, total int64)

	// Reject, when set, is told each fault of a line that is left out, whole or
	// in part.
	Reject func(Rejected)

	// Log is where retries are logged. The default discards.
	Log *slog.Logger
}

// An Input is JSONL that can be read more than once.
type Input struct {
	Name string // as rejections tell it
	Open func() (io.ReadCloser, error)
}

// Run loads all artifacts of the inputs, then their links and signals, many of
// which lead to later lines. What is on the hub already counts as unchanged, so a
// load may be run again.
//
// When ctx ends, the batches under way are finished first. The summary is of
// what was done, whatever the error is: ctx's own, the first permission_denied,
// or that of a hub which stayed away for RetryFor. Lines that are left out are no
// error.
func Run(ctx context.Context, c Config) (Summary, error) {
	c.Parallel = cmp.Or(max(c.Parallel, 0), 2)
	c.RetryFor = cmp.Or(c.RetryFor, 2*time.Minute)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	run, stop := context.WithCancel(ctx)
	defer stop()
	start := time.Now()
	l := &loader{c: c, stop: stop, sender: sender{c: c, events: make(chan event)}, rejected: make(map[int64]bool)}
	err := l.run(run)
	l.sum.finish(time.Since(start))
	return l.sum, err
}

// A loader reads lines, gathers batches and counts what became of them. All of
// it happens on the goroutine that calls Run.
type loader struct {
	c      Config
	stop   context.CancelFunc // ends reading and retrying
	sender sender
	sum    Summary

	rejected map[int64]bool // numbers of the lines with a fault

	workers  sync.WaitGroup
	inFlight int
	failed   error // the first failure of a batch

	links, signals batch // being gathered
	lastSignals    <-chan struct{}

	undone int64 // the first line that was read and not done; 0 for none

	lines, linesSeen, linksSeen, done int64 // for progress
}

func (l *loader) run(ctx context.Context) error {
	if err := l.countLines(ctx); err != nil {
		return err
	}
	artifacts := new(batch)
	err := l.walk(ctx, func(at place, line []byte, tooLong bool) { l.readArtifact(ctx, at, line, tooLong, artifacts) })
	l.dispatch(ctx, artifacts)
	l.drain()
	if err = cmp.Or(l.failed, err); err != nil {
		return err // links wait for all artifacts: only a run from the start makes sure of them
	}
	l.lines = l.linesSeen    // exact from here on
	next := max(l.c.From, 1) // the first line that was not read
	err = l.walk(ctx, func(at place, line []byte, _ bool) {
		if !l.rejected[at.number] {
			l.readLinks(ctx, at, line)
		}
		next = at.number + 1
	})
	l.dispatch(ctx, &l.links)
	l.dispatch(ctx, &l.signals)
	l.drain()
	if err = cmp.Or(l.failed, err); err != nil {
		l.sum.ResumeFrom = cmp.Or(l.undone, next)
	}
	return err
}

// fail ends the load for the first of its failures.
func (l *loader) fail(err error) {
	if l.failed == nil {
		l.failed = err
		l.stop()
	}
}

// walk calls f with each line that is not blank, until ctx ends.
func (l *loader) walk(ctx context.Context, f func(at place, line []byte, tooLong bool)) error {
	number := int64(0)
	for _, in := range l.c.Inputs {
		err := eachLine(in, func(n int, line []byte, tooLong bool) error {
			number++
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if number >= l.c.From && (tooLong || len(line) > 0) {
				f(place{file: in.Name, line: n, number: number}, line, tooLong)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// countLines counts the lines to come, for progress alone.
func (l *loader) countLines(ctx context.Context) error {
	if l.c.Progress == nil {
		return nil
	}
	for _, in := range l.c.Inputs {
		n, err := lineCount(ctx, in)
		if err != nil {
			return err
		}
		l.lines += n
	}
	l.lines = max(0, l.lines-max(l.c.From-1, 0))
	return nil
}

// readArtifact checks a line and queues its artifact.
func (l *loader) readArtifact(ctx context.Context, at place, line []byte, tooLong bool, into *batch) {
	l.sum.Lines++
	l.linesSeen++
	if tooLong {
		l.finish(1)
		l.reject(at, nil, problem("", "max_bytes", fmt.Sprintf("a line is at most %d bytes", MaxLine)))
		return
	}
	r, problems := parse(line, l.c.Import)
	if r.typ != signalType {
		l.linksSeen += int64(len(r.links))
	}
	switch {
	case problems != nil:
		l.refuse(at, line, &r, problems)
	case r.typ != signalType:
		l.add(ctx, into, item{at: at, line: line, record: &r, write: verb.BatchItem{
			Create: &verb.CreateRequest{Type: r.typ, ID: r.id, Title: r.title, Content: r.content},
		}})
	}
}

// refuse counts a line that is left out whole, with its links.
func (l *loader) refuse(at place, line []byte, r *record, problems []artifact.Problem) {
	switch r.typ {
	case "": // nobody knows what it was
	case signalType:
		l.sum.Signals.Rejected++
	default:
		l.sum.Artifacts.Rejected++
		l.sum.Links.Skipped += int64(len(r.links))
		l.finish(int64(len(r.links)))
	}
	l.finish(1)
	l.reject(at, line, problems...)
}

// readLinks queues the links, or the signal, of a line that readArtifact found
// good.
func (l *loader) readLinks(ctx context.Context, at place, line []byte) {
	r, err := parseLinks(line)
	var problems []artifact.Problem
	if err == nil && r.typ == signalType {
		r, problems = parse(line, l.c.Import)
	}
	if err != nil || problems != nil {
		l.lose(at)
		l.fail(fmt.Errorf("%s:%d: the file changed while it was loaded", at.file, at.line))
		return
	}
	if r.typ == signalType {
		l.add(ctx, &l.signals, item{at: at, line: line, record: &r, write: verb.BatchItem{Signal: r.signal}})
		return
	}
	from := artifact.Ref{Type: r.typ, ID: r.id}.String()
	for i, k := range r.links {
		l.add(ctx, &l.links, item{at: at, line: line, record: &r, place: i, write: verb.BatchItem{
			Link: &verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{Predicate: k.rel, To: k.to}},
		}})
	}
}

// add puts an item into a batch, which is sent first if it is full.
func (l *loader) add(ctx context.Context, b *batch, it item) {
	size := 0
	if raw, err := json.Marshal(it.write); err == nil { // what was parsed encodes again
		size = len(raw)
	}
	if !b.fits(size, &it) {
		l.dispatch(ctx, b)
	}
	b.add(size, it)
}

// dispatch sends a batch as soon as fewer than Parallel are under way, and
// empties it. Signals of one input follow each other in order, since the last
// one of a voter counts.
func (l *loader) dispatch(ctx context.Context, b *batch) {
	if len(b.items) == 0 {
		return
	}
	sent := *b
	*b = batch{}
	for l.inFlight >= l.c.Parallel {
		l.take(<-l.sender.events)
	}
	if l.failed != nil {
		l.lose(sent.items[0].at)
		return
	}
	done := make(chan struct{})
	if sent.items[0].write.Signal != nil {
		sent.after, l.lastSignals = l.lastSignals, done
	}
	l.inFlight++
	l.workers.Go(func() {
		defer close(done)
		l.sender.send(ctx, &sent)
	})
}

// drain waits for all batches under way.
func (l *loader) drain() {
	for l.inFlight > 0 {
		l.take(<-l.sender.events)
	}
	l.workers.Wait()
}

// take counts what a worker tells.
func (l *loader) take(e event) {
	if e.result == nil {
		l.c.Log.Warn("the hub did not take a batch; trying again", "err", e.err, "in", e.wait.Round(time.Millisecond))
		l.finish(0)
		return
	}
	l.inFlight--
	b, r := e.batch, e.result
	if e.err != nil {
		l.lose(b.items[0].at)
		l.fail(e.err)
		return
	}
	if r.seq > l.sum.LastSeq {
		l.sum.LastSeq, l.sum.ConsistencyToken = r.seq, r.token
	}
	for i := range b.items {
		l.count(&b.items[i], &r.outcomes[i])
	}
	l.finish(0)
}

func (l *loader) count(it *item, o *outcome) {
	if o.fate == rejected && it.write.Create != nil {
		l.refuse(it.at, it.line, it.record, o.problems)
		return
	}
	counts := &l.sum.Artifacts
	switch {
	case it.write.Link != nil:
		counts = &l.sum.Links.Counts
	case it.write.Signal != nil:
		counts = &l.sum.Signals
	}
	l.done++
	switch o.fate {
	case created:
		counts.Created++
	case unchanged:
		counts.Unchanged++
	case rejected:
		counts.Rejected++
		l.reject(it.at, it.line, o.problems...)
	}
}

// lose notes that a batch that begins there was not done.
func (l *loader) lose(at place) {
	if l.undone == 0 || at.number < l.undone {
		l.undone = at.number
	}
}

// reject tells the faults of a line. The record goes with the first of them.
func (l *loader) reject(at place, line []byte, problems ...artifact.Problem) {
	known := l.rejected[at.number]
	if !known {
		l.rejected[at.number] = true
		l.sum.RejectedLines++
	}
	if l.c.Reject == nil {
		return
	}
	for i, p := range problems {
		r := Rejected{File: at.file, Line: at.line, Path: p.Path, Constraint: p.Constraint, Message: p.Message}
		if i == 0 && !known {
			r.Record = asRecord(line)
		}
		l.c.Reject(r)
	}
}

// finish counts records that are done and tells the progress.
func (l *loader) finish(n int64) {
	l.done += n
	if l.c.Progress == nil {
		return
	}
	links := l.linksSeen
	if l.linesSeen > 0 && l.lines > l.linesSeen {
		links = int64(float64(links) / float64(l.linesSeen) * float64(l.lines))
	}
	l.c.Progress(l.done, max(l.lines, l.linesSeen)+links)
}
