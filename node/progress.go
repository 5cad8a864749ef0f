package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A progress is how far a replica is that is being built.
type progress struct {
	log *slog.Logger

	mu    sync.Mutex // guards what follows
	state Building
	since time.Time // when this try began
	first int64     // rows that were there then
	told  time.Time
}

// Building tells how far a replica is that is being built beside the one that is
// served, or before the first can be.
type Building struct {
	Reason        string        `json:"reason"` // "" while none is being built
	Phase         string        `json:"phase"`  // waiting, copying, filling, indexing, catching up or checking
	Kind          string        `json:"kind,omitempty"`
	Rows          int64         `json:"rows"`
	Total         int64         `json:"total_rows"` // about
	Percent       int           `json:"percent"`    // of the rows
	RowsPerSecond int64         `json:"rows_per_second"`
	ETA           time.Duration `json:"-"`
	ETAMs         int64         `json:"eta_ms"` // 0: not known
	Behind        artifact.Seq  `json:"behind"` // changes still to be caught up with
	Error         string        `json:"error,omitempty"`
}

// tellEvery is how often the log tells of progress.
const tellEvery = 3 * time.Second

func (p *progress) now() Building {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *progress) change(f func(*Building)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.state)
}

func (p *progress) start(reason string) {
	p.change(func(b *Building) { *b = Building{Reason: reason, Phase: "waiting", Error: b.Error} })
}

func (p *progress) end() { p.change(func(b *Building) { *b = Building{} }) }

func (p *progress) failed(err error) {
	p.change(func(b *Building) { b.Phase, b.Error = "waiting", err.Error() })
}

func (p *progress) phase(ctx context.Context, name string) {
	p.change(func(b *Building) { b.Phase, b.Kind = name, "" })
	p.log.InfoContext(ctx, "the replica is being built", "phase", name)
}

// begin notes where a try begins.
func (p *progress) begin(s *side) {
	p.change(func(b *Building) {
		p.since, p.first, p.told = time.Now(), s.rows, time.Now()
		b.Phase, b.Rows, b.Total, b.Error = "filling", s.rows, max(s.total, s.rows), ""
	})
}

// page notes a page that was stored, and tells now and then.
func (p *progress) page(ctx context.Context, s *side, kind string) {
	tell := false
	var b Building
	p.change(func(st *Building) {
		st.Kind, st.Rows, st.Total = kind, s.rows, max(s.total, s.rows)
		if st.Total > 0 {
			st.Percent = int(min(99, 100*st.Rows/st.Total))
		}
		if spent := time.Since(p.since); spent > 100*time.Millisecond {
			rate := float64(st.Rows-p.first) / spent.Seconds()
			st.RowsPerSecond = int64(rate)
			if rate > 0 {
				st.ETA = time.Duration(float64(st.Total-st.Rows) / rate * float64(time.Second)).Round(time.Second)
				st.ETAMs = st.ETA.Milliseconds()
			}
		}
		if tell = time.Since(p.told) > tellEvery; tell {
			p.told = time.Now()
		}
		b = *st
	})
	if tell {
		p.log.InfoContext(ctx, "the replica is being built", "percent", b.Percent, "rows", b.Rows, "of_about", b.Total,
			"rows_per_second", b.RowsPerSecond, "eta", b.ETA.String(), "kind", kind)
	}
}

// lag notes how far the feed still is.
func (p *progress) lag(applied, head artifact.Seq) {
	p.change(func(b *Building) { b.Behind = max(0, head-applied) })
}
