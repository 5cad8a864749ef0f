package transport

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A socket is a connection whose writes take as long as they need while the peer
// accepts bytes. It reports a stall once none was accepted for wait, then goes on
// trying until someone closes it: a peer that wakes up still learns why it ends.
type socket struct {
	net.Conn
	wait  time.Duration
	stall atomic.Pointer[func()] // called once
	moved atomic.Int64           // Unix nanoseconds: the peer last made room for a waiting write
}

// blocked is how long a write takes that had to wait for room in the kernel's buffer.
const blocked = 5 * time.Millisecond

// chunk is what one deadline covers: a TLS record, as TLS cannot resume a write.
const chunk = 16 << 10

// SetWriteDeadline does nothing: Write sets its own.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

func (s *socket) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = s.write(p[n:min(len(p), n+chunk)])
		n += m
	}
	return n, err
}

// write polls, as a deadline alone does not tell a slow peer from a stalled one.
func (s *socket) write(p []byte) (n int, err error) {
	_, resumes := s.Conn.(*net.TCPConn)
	start := time.Now()
	progress := start
	for n < len(p) {
		patience := s.wait
		if resumes {
			patience = s.wait / 8
		}
		if err := s.Conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return n, err
		}
		m, err := s.Conn.Write(p[n:])
		n += m
		now := time.Now()
		if m > 0 {
			progress = now
			if now.Sub(start) > blocked {
				s.moved.Store(now.UnixNano())
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if now.Sub(progress) >= s.wait || !resumes {
			s.stalled()
		}
		if !resumes {
			return n, err
		}
	}
	return n, nil
}

func (s *socket) stalled() {
	if f := s.stall.Swap(nil); f != nil {
		(*f)()
	}
}

// A hijacker lets an Upgrader take over a socket instead of the plain connection,
// through whatever wraps the ResponseWriter.
type hijacker struct {
	http.ResponseWriter
	wait time.Duration
	took *socket
}

// writeBuffers are shared by all websockets: an idle one holds none.
var writeBuffers sync.Pool

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.took = &socket{Conn: c, wait: h.wait}
	return h.took, rw, nil
}
