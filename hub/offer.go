package hub

import (
	"sync"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// maxOffered bounds the rows that wait for the pump, in bytes. What is past it
// the pump reads from the log, as it does what other hubs wrote.
const maxOffered = 16 << 20

// offers are rows that this process has committed and that its pump has not come
// to, so that it need not read back what was written a moment before.
type offers struct {
	mu    sync.Mutex
	rows  map[artifact.Seq][]logRow // guarded by mu; by the first one's seq
	bytes int                       // guarded by mu
}

// put offers the rows of a transaction.
func (o *offers) put(rows []logRow) {
	n := sizeOf(rows)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(rows) == 0 || o.bytes+n > maxOffered {
		return
	}
	if o.rows == nil {
		o.rows = make(map[artifact.Seq][]logRow)
	}
	o.rows[rows[0].Seq] = rows
	o.bytes += n
}

// take returns the rows that follow a seq, if they are offered. Otherwise it forgets
// those that were read meanwhile.
func (o *offers) take(after artifact.Seq) []logRow {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rows, ok := o.rows[after+1]; ok {
		o.drop(after+1, rows)
		return rows
	}
	for first, rows := range o.rows {
		if first <= after {
			o.drop(first, rows)
		}
	}
	return nil
}

// drop takes rows out. The caller holds mu.
func (o *offers) drop(first artifact.Seq, rows []logRow) {
	delete(o.rows, first)
	o.bytes -= sizeOf(rows)
}

func sizeOf(rows []logRow) (n int) {
	for i := range rows {
		n += entryOverhead + len(rows[i].Data) + len(rows[i].Content)
		if e := rows[i].Event; e != nil {
			n += len(e.Payload)
		}
	}
	return n
}

// logRows returns the rows of a transaction as the log has them after a seq; false
// when not all of what they say is at hand.
func logRows(after artifact.Seq, commits []commit, revisions []*revisionRow) ([]logRow, bool) {
	type version struct {
		ref      string
		revision int32
	}
	contents := make(map[version][]byte, len(revisions))
	for _, r := range revisions {
		ref := artifact.Ref{Type: r.Type, ID: r.ID}
		contents[version{ref.String(), int32(r.Revision.Revision)}] = r.content //nolint:gosec // revisions count writes of one artifact
	}
	var out []logRow
	for _, c := range commits {
		r := c.rows
		last := after + artifact.Seq(len(r.kind))
		for i := range r.kind {
			after++
			row := logRow{class: r.class[i], Row: replicate.Row{
				Seq: after, Commit: last, Scope: r.scope[i], Kind: r.kind[i], Op: r.op[i], Ref: r.ref[i], Revision: int(r.revision[i]), At: c.caller.Now,
			}}
			copy(row.Hash[:], r.hash[i])
			copy(row.PrevHash[:], r.prevHash[i])
			if r.data[i] != nil {
				row.Data = []byte(*r.data[i])
				if row.Kind == replicate.KindRevision {
					content, ok := contents[version{row.Ref, r.revision[i]}]
					if !ok {
						return nil, false
					}
					row.Content = content
				}
			}
			if r.eventType[i] != nil {
				row.Event = &replicate.RowEvent{
					Type: *r.eventType[i], Ref: *r.eventRef[i], ActorID: c.caller.Actor.ID, ActorKind: c.caller.Actor.Kind, Payload: []byte(*r.eventDetail[i]),
				}
			}
			out = append(out, row)
		}
	}
	return out, true
}
