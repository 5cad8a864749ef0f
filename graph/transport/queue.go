package transport

import (
	"context"
	"sync"
)

// A frame is one message on its way out.
type frame struct {
	op   *operation // nil: the connection's own
	text []byte
}

// A queue holds what one connection's writer has yet to send. It makes operations
// wait for room, but never the reader, which would then miss the peer's pongs.
type queue struct {
	maxFrames, maxBytes int
	ready               chan struct{} // has a token when frames may wait

	mu     sync.Mutex // guards what follows
	room   sync.Cond
	frames []frame
	bytes  int
}

// ownFrames is how many frames of the connection itself may wait beyond maxFrames:
// only a peer that asks and does not read reaches it.
const ownFrames = 256

func newQueue(maxFrames, maxBytes int) *queue {
	q := &queue{maxFrames: maxFrames, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
	q.room.L = &q.mu
	return q
}

// push waits for room, or for ctx's end. Once ctx has ended, it queues nothing.
func (q *queue) push(ctx context.Context, f frame) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full(len(f.text)) {
		stop := context.AfterFunc(ctx, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.room.Broadcast()
		})
		defer stop()
	}
	for ctx.Err() == nil && q.full(len(f.text)) {
		q.room.Wait()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	q.add(f)
	return nil
}

// pushOwn queues a frame of the connection itself at once. It reports false if even
// the reserve is used up.
func (q *queue) pushOwn(text []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) >= q.maxFrames+ownFrames {
		return false
	}
	q.add(frame{text: text})
	return true
}

// take returns the first frame, if there is one.
func (q *queue) take() (f frame, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) == 0 {
		return frame{}, false
	}
	f = q.frames[0]
	q.frames[0] = frame{}
	if q.frames = q.frames[1:]; len(q.frames) == 0 {
		q.frames = nil // an idle connection keeps no array
	} else {
		q.wake()
	}
	q.bytes -= len(f.text)
	q.room.Broadcast()
	return f, true
}

// full lets a frame over maxBytes pass alone. The caller holds mu.
func (q *queue) full(bytes int) bool {
	return len(q.frames) >= q.maxFrames || len(q.frames) > 0 && q.bytes+bytes > q.maxBytes
}

// add appends f. The caller holds mu.
func (q *queue) add(f frame) {
	q.frames = append(q.frames, f)
	q.bytes += len(f.text)
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
