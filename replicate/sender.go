package replicate

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// A sender writes frames through to the network, each within a deadline.
type sender struct {
	w     io.Writer
	zstd  bool
	rc    *http.ResponseController
	wait  time.Duration
	until time.Time // the deadline that is set
	sent  time.Time // when something was last sent
}

// newSender begins the answer to a request.
func newSender(w http.ResponseWriter, req *http.Request, wait time.Duration) *sender {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Encoding")
	if req.ProtoMajor == 1 {
		// The stream ends with its connection. In chunks, a line that is larger
		// than the server's buffer would go out in three writes.
		w.Header().Set("Transfer-Encoding", "identity")
	}
	s := &sender{w: w, rc: http.NewResponseController(w), wait: cmp.Or(wait, 30*time.Second)}
	if strings.Contains(req.Header.Get("Accept-Encoding"), "zstd") {
		w.Header().Set("Content-Encoding", "zstd")
		s.zstd = true
	}
	return s
}

// page sends a page that others may be sent too.
func (s *sender) page(p *Page) error {
	if s.zstd {
		return s.write(p.Packed())
	}
	return s.write(p.Line())
}

// value sends the JSON of a frame.
func (s *sender) value(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.plain(append(line, '\n'))
}

// plain sends a line that is packed for this stream alone.
func (s *sender) plain(line []byte) error {
	if s.zstd {
		line = pack(line)
	}
	return s.write(line)
}

func (s *sender) write(b []byte) error {
	// Setting the deadline anew costs as much as a small write's own work.
	s.sent = time.Now()
	if s.until.Sub(s.sent) < s.wait-s.wait/16 {
		s.until = s.sent.Add(s.wait)
		if err := s.rc.SetWriteDeadline(s.until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}
