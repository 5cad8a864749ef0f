package load

import (
	"github.com/scidex-ai/substrate/verb"
)

// Limits of a batch. The hub takes more; smaller ones answer sooner and cost
// less to send again.
const (
	maxItems      = 200
	maxBatchBytes = 4<<20 - 256 // of the items' JSON; the rest is for what holds them
	maxHeldBytes  = 8 << 20     // of the lines that the items come from
)

// A batch is writes that go to the hub together.
type batch struct {
	items []item
	bytes int             // of the items' JSON
	held  int             // of their lines
	after <-chan struct{} // closed when the batch may be sent; nil for at once
}

// An item is one write and the line that it comes from.
type item struct {
	at     place
	line   []byte
	record *record
	place  int // of a link, in the line
	write  verb.BatchItem
}

// fits reports whether an item of this size may join the batch. An empty batch
// takes any.
func (b *batch) fits(size int, it *item) bool {
	return len(b.items) == 0 ||
		len(b.items) < maxItems && b.bytes+size < maxBatchBytes && b.held+b.adds(it) <= maxHeldBytes
}

func (b *batch) add(size int, it item) {
	b.bytes += size + 1 // a comma
	b.held += b.adds(&it)
	b.items = append(b.items, it)
}

// adds returns how many bytes of lines an item brings: none when the last item
// is of the same line.
func (b *batch) adds(it *item) int {
	if n := len(b.items); n > 0 && b.items[n-1].at.number == it.at.number {
		return 0
	}
	return len(it.line)
}
