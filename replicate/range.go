package replicate

import (
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
)

// A KeyRange is a part of the rows that one sum of a digest is of, in the order of
// their keys: ids, and seqs of events. It begins after After and ends with To;
// empty bounds are open.
type KeyRange struct {
	DigestKey
	After, To string
}

// Holds reports whether a key lies in the range.
func (r *KeyRange) Holds(key string) bool {
	if r.Kind == KindEvent {
		after, to := r.Seqs()
		seq, err := strconv.ParseInt(key, 10, 64)
		return err == nil && seq > after && seq <= to
	}
	return key > r.After && (r.To == "" || key <= r.To)
}

// maxSeq is above all seqs.
const maxSeq = 1<<63 - 1

// Seqs returns the bounds of a range of events; one that is no number is open.
func (r *KeyRange) Seqs() (after, to int64) {
	after, err := strconv.ParseInt(r.After, 10, 64)
	if err != nil {
		after = 0
	}
	if to, err = strconv.ParseInt(r.To, 10, 64); err != nil {
		to = maxSeq
	}
	return after, to
}

// A Bucket is what the rows from the end of the bucket before it up to and with To
// sum up to. The last one of a range ends where that does.
type Bucket struct {
	To    string        `json:"to"`
	Count int64         `json:"count"`
	XOR   artifact.Hash `json:"xor"`
}

// Buckets are the sums of a range, in order, at one seq. They cover all of it.
type Buckets struct {
	Seq     artifact.Seq `json:"seq"`
	Buckets []Bucket     `json:"buckets"`
}

// A Thing names a row that the digest covers, within its scope, kind and type.
type Thing struct {
	Key      string `json:"key"`           // its id; of an event its seq
	Revision int    `json:"rev,omitempty"` // of a revision
}

// A HashedThing is a thing with the hash of its row.
type HashedThing struct {
	Thing
	Hash artifact.Hash `json:"hash"`
}

// A Listing is the things of a range at one seq, in order.
type Listing struct {
	Seq  artifact.Seq  `json:"seq"`
	Rows []HashedThing `json:"rows"`
}

// Thing returns what a row is of, and its key in the digest; not ok for a row that
// the digest does not cover.
func (r *Row) Thing() (k DigestKey, t Thing, ok bool) {
	if k, ok = r.DigestKey(); !ok {
		return k, t, false
	}
	for i := range len(r.Ref) {
		if r.Ref[i] == ':' {
			t.Key = r.Ref[i+1:]
			break
		}
	}
	if r.Kind == KindRevision {
		t.Revision = r.Revision
	}
	return k, t, true
}

// EventThing returns what a row's event is in the digest; not ok without one.
func (r *Row) EventThing() (k DigestKey, t Thing, ok bool) {
	if r.Event == nil {
		return k, t, false
	}
	return DigestKey{r.Scope, KindEvent, r.Event.Type}, Thing{Key: strconv.FormatInt(int64(r.Seq), 10)}, true
}

// Faults of a hub's own row, for which a replica must not take it.
const (
	FaultHash = "hash" // it is not what its hash says
	FaultLog  = "log"  // the log says otherwise
)

// A StoredRow is a thing as the hub's tables hold it, in the form of the feed, or
// the word that they do not.
type StoredRow struct {
	Thing
	Row *Row `json:"row,omitempty"` // nil: the scope does not hold it

	// Gone says that the hub knows where it went: it was moved or taken back.
	Gone  bool   `json:"gone,omitempty"`
	Fault string `json:"fault,omitempty"`
}

// StoredRows are things as they are at one seq: of those that were asked for the
// first ones, as many as an answer holds, and rows beside them that they need.
type StoredRows struct {
	Seq  artifact.Seq `json:"seq"`
	Rows []StoredRow  `json:"rows"`
}

// A RowsRequest asks for things of one scope, kind and type.
type RowsRequest struct {
	DigestKey
	Things []Thing `json:"things"`
}
