package replicate

import (
	"fmt"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/scidex-ai/substrate/artifact"
)

// A Page is rows ready to be sent, to any number of followers: the bytes that go
// out are made once, when first asked for.
type Page struct {
	From, To artifact.Seq
	Chain    artifact.Hash // at To; not sent with a part
	Head     artifact.Seq
	Rows     [][]byte // each as [Row.AppendJSON] wrote it
	Partial  bool

	lineOnce, packOnce sync.Once
	line, packed       []byte
}

// Line returns p as it is sent: one line of JSON. It is not to be changed.
func (p *Page) Line() []byte {
	p.lineOnce.Do(func() { p.line = p.appendJSON(make([]byte, 0, 192+p.size())) })
	return p.line
}

// Packed returns p's line as a frame of zstd that stands alone. Such frames one
// after another are a stream of zstd.
func (p *Page) Packed() []byte {
	p.packOnce.Do(func() {
		buf := lines.Get().(*[]byte)
		*buf = p.appendJSON((*buf)[:0])
		p.packed = pack(*buf)
		if cap(*buf) <= 2*MaxPageBytes { // a rare large page need not be kept
			lines.Put(buf)
		}
	})
	return p.packed
}

func (p *Page) size() (n int) {
	for _, row := range p.Rows {
		n += len(row) + 1
	}
	return n
}

// appendJSON appends p's line to b.
func (p *Page) appendJSON(b []byte) []byte {
	typ := FramePage
	switch {
	case p.Partial:
		typ = FramePart
	case len(p.Rows) == 0:
		typ = FrameBeat
	}
	b = fmt.Appendf(b, `{"type":%q,"from":%d,"to":%d,"head":%d`, typ, p.From, p.To, p.Head)
	if !p.Chain.IsZero() && !p.Partial {
		b = appendMember(b, "chain", p.Chain.String())
	}
	if len(p.Rows) == 0 {
		b = append(b, `,"at":"`...)
		b = time.Now().UTC().AppendFormat(b, artifact.TimeFormat)
		return append(b, "\"}\n"...)
	}
	b = append(b, `,"rows":[`...)
	for i, row := range p.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, row...)
	}
	return append(b, "]}\n"...)
}

// lines are buffers for lines that are only packed.
var lines = sync.Pool{New: func() any { return new([]byte) }}

// packer packs for all streams: none has an encoder, nor a window, of its own.
var packer = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(512<<10))
	if err != nil {
		panic(err) // of options that are written here
	}
	return e
})

func pack(line []byte) []byte {
	return packer().EncodeAll(line, make([]byte, 0, 64+len(line)/2))
}
