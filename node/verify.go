package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// ErrNotComparable reports that replica and hub could not be compared at one place
// of the log, so that nothing is known of whether they are equal.
var ErrNotComparable = errors.New("replica and hub cannot be compared now")

// A VerifyReport is the outcome of comparing a replica with its hub.
type VerifyReport struct {
	Kept        replicate.Digest `json:"kept"`    // as the replica kept it while applying
	Counted     replicate.Digest `json:"counted"` // as its tables say
	Hub         replicate.Digest `json:"hub"`
	Differences []string         `json:"differences"` // by scope, kind and type; none means that they are equal
	Rows        []Difference     `json:"rows"`        // what differs, or differed before a repair
	Mended      int              `json:"mended"`      // rows that a repair fetched again
	Left        int              `json:"left"`        // rows that it could not
	Asked       int              `json:"asked"`       // questions to the hub

	// TooMuch says that the replica is better copied anew, and Rows holds but some.
	TooMuch bool `json:"too_much,omitempty"`
}

// Equal reports whether nothing differs.
func (r *VerifyReport) Equal() bool { return len(r.Differences) == 0 }

// HubAtFault reports whether the hub's own rows are why some were left.
func (r *VerifyReport) HubAtFault() bool {
	return slices.ContainsFunc(r.Rows, func(d Difference) bool {
		return d.Outcome == leftFault || d.Outcome == leftLogged || d.Outcome == leftLost
	})
}

const (
	// comparisons is how often replica and hub are compared until it says something.
	comparisons = 4
	// catchUpWait bounds how long the replica may take to come to the hub's head
	// before it is compared again.
	catchUpWait = 30 * time.Second
)

// NotNow tells whether an error of [Node.Verify] or [Node.Repair] says nothing of
// the replica: there is no common place now, the hub does not answer, or there is no
// whole replica yet.
func NotNow(err error) bool {
	if err == nil {
		return false
	}
	_, away := errors.AsType[*url.Error](err)
	return away || errors.Is(err, ErrNotComparable) || artifact.IsCode(err, artifact.CodeUnavailable)
}

// Verify compares the replica with its hub at one place of the log, after it made
// and hashed all its rows anew. Its error wraps [ErrNotComparable] when there is
// no such place.
func (n *Node) Verify(ctx context.Context) (VerifyReport, error) {
	store, err := n.lease()
	if err != nil {
		return VerifyReport{}, err
	}
	defer store.uses.done()
	report, _, err := n.compare(ctx, store)
	return report, err
}

// compare is [Node.Verify]; it returns what the report was made of, too.
func (n *Node) compare(ctx context.Context, store *Store) (report VerifyReport, c census, err error) {
	for try := 1; ; try++ {
		var head artifact.Seq
		var unsettled []replicate.DigestKey
		c, err = n.countBoth(ctx, store, &report)
		switch {
		case err == nil:
			if unsettled = report.unsettled(&c); unsettled == nil {
				return report, c, n.findRows(ctx, store, &report, &c)
			}
			err = fmt.Errorf("%w: the replica is at %d, and of %s %s in %s the hub gives no more what the log said up to there", ErrNotComparable,
				c.at.Seq, unsettled[0].Kind, unsettled[0].Type, unsettled[0].Scope)
		case artifact.AsError(err).Reason == artifact.ReasonSeqOutOfRange:
			err = fmt.Errorf("%w: the replica is at %d: %w", ErrNotComparable, c.at.Seq, err)
		default:
			return report, c, err
		}
		head = n.status.Load().Head
		if try == comparisons || head <= c.at.Seq && unsettled == nil {
			return report, c, err
		}
		wait, cancel := context.WithTimeout(ctx, catchUpWait)
		late := store.WaitApplied(wait, max(head, c.at.Seq+1))
		cancel()
		if late != nil {
			return report, c, errors.Join(err, ctx.Err())
		}
	}
}

// countBoth takes the census of the replica and asks the hub for the same place.
func (n *Node) countBoth(ctx context.Context, store *Store, report *VerifyReport) (c census, err error) {
	type answer struct {
		digest replicate.Digest
		err    error
	}
	hub := make(chan answer, 1)
	report.Asked++
	c, err = store.census(ctx, func(at replicate.Position) {
		if at.HubID == "" {
			hub <- answer{err: fmt.Errorf("%w: the replica has not heard its hub yet", ErrNotComparable)}
			return
		}
		go func() {
			d, err := n.feed.Digest(ctx, at)
			hub <- answer{d, err}
		}()
	})
	if err != nil {
		return c, err
	}
	a := <-hub
	if a.err != nil {
		return c, fmt.Errorf("ask the hub for its digest: %w", a.err)
	}
	report.Kept, report.Counted, report.Hub = c.kept, c.counted, a.digest
	if a.digest.Scopes != nil { // one may have been gained or lost and not be told of yet
		c.scopes = slices.DeleteFunc(c.scopes, func(s string) bool { return !slices.Contains(a.digest.Scopes, s) })
	}
	return c, nil
}

// unsettled returns the keys that differ, maybe because the replica applies the
// log late.
func (r *VerifyReport) unsettled(c *census) (keys []replicate.DigestKey) {
	for _, k := range append(c.kept.Differing(c.counted), r.differing(c)...) {
		if slices.Contains(r.Hub.Unsettled, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// differing returns the keys under which the replica's rows are not the hub's.
func (r *VerifyReport) differing(c *census) []replicate.DigestKey {
	return c.counted.In(c.scopes).Differing(r.Hub.In(c.scopes))
}

// findRows says what differs, and in which rows.
func (n *Node) findRows(ctx context.Context, store *Store, report *VerifyReport, c *census) error {
	report.Differences = prefixed("kept against counted: ", c.kept.Diff(c.counted))
	report.Differences = append(report.Differences, prefixed("replica against hub: ", c.counted.In(c.scopes).Diff(report.Hub.In(c.scopes)))...)
	d := &drill{store: store, feed: n.feed}
	for _, k := range report.differing(c) {
		err := d.into(ctx, k, max(c.counted.Of(k).Count, report.Hub.Of(k).Count))
		if errors.Is(err, errTooMuch) {
			report.TooMuch = true
			break
		}
		if err != nil {
			return err
		}
	}
	report.Asked += d.asked
	report.Rows = d.out
	known := make(map[thingKey]bool, len(d.out))
	for i := range d.out {
		known[d.out[i].key()] = true
	}
	faults := make(map[replicate.DigestKey]int)
	for _, f := range c.found {
		faults[f.DigestKey]++
		row := Difference{DigestKey: f.DigestKey, Thing: f.Thing, What: f.what}
		if !known[row.key()] {
			known[row.key()] = true
			report.Rows = append(report.Rows, row)
		}
	}
	report.TooMuch = report.TooMuch || len(report.Rows) > maxFindings
	for k, count := range faults {
		report.Differences = append(report.Differences, fmt.Sprintf("replica: %s %s %s: %d rows are not what their hashes say", k.Scope, k.Kind, k.Type, count))
	}
	return nil
}

// A thingKey identifies a row.
type thingKey struct {
	replicate.DigestKey
	replicate.Thing
}

func (d *Difference) key() thingKey { return thingKey{d.DigestKey, d.Thing} }

func prefixed(prefix string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = prefix + l
	}
	return out
}

// repairs is how often what differs is mended: rows, then what is kept count of, and
// again for what the feed changed meanwhile.
const repairs = 4

// Repair verifies, and fetches the rows that differ from the hub again. The report
// says how it is afterwards, and what became of each row. One repair is under way
// at a time, and the node must be running.
func (n *Node) Repair(ctx context.Context) (VerifyReport, error) {
	n.repairing.Lock()
	defer n.repairing.Unlock()
	store, err := n.lease()
	if err != nil {
		return VerifyReport{}, err
	}
	defer store.uses.done()
	rows := make(map[thingKey]Difference)
	var order []thingKey
	asked := 0
	for round := 1; ; round++ {
		report, c, err := n.compare(ctx, store)
		progress := false
		if err == nil && !report.Equal() && !report.TooMuch && round < repairs {
			progress, err = n.repair(ctx, store, &report, &c)
		}
		for _, d := range report.Rows {
			was, known := rows[d.key()]
			if !known {
				order = append(order, d.key())
			}
			if d.Outcome == "" {
				if d.Outcome = was.Outcome; d.Outcome == mended {
					d.Outcome = leftAgain
				}
			}
			rows[d.key()] = d
		}
		asked += report.Asked
		if progress && err == nil {
			continue
		}
		report.Asked, report.Rows = asked, nil
		for _, k := range order {
			d := rows[k]
			report.Rows = append(report.Rows, d)
			if d.Outcome == mended {
				report.Mended++
			} else {
				report.Left++
			}
		}
		return report, err
	}
}

// repair mends what a report tells of, and reports whether anything changed.
func (n *Node) repair(ctx context.Context, store *Store, report *VerifyReport, c *census) (progress bool, err error) {
	groups := make(map[replicate.DigestKey][]*Difference)
	for i := range report.Rows {
		d := &report.Rows[i]
		if !slices.Contains(c.scopes, d.Scope) {
			d.Outcome = leftScope
			continue
		}
		d.agreed = c.kept.Of(d.DigestKey) == report.Hub.Of(d.DigestKey)
		groups[d.DigestKey] = append(groups[d.DigestKey], d)
	}
	for k, rows := range groups {
		asked, err := n.mend(ctx, store, c.at, k, rows)
		report.Asked += asked
		if err != nil {
			return progress, err
		}
		progress = progress || slices.ContainsFunc(rows, func(d *Difference) bool { return d.Outcome == mended || d.Outcome == leftNewer })
	}
	sums := make(replicate.Sums)
	for _, k := range c.kept.Differing(c.counted) {
		if right := report.Hub.Of(k); slices.Contains(c.scopes, k.Scope) && c.counted.Of(k) == right {
			change := c.kept.Of(k)
			change.Remove(right.XOR) // XOR is its own inverse
			change.Count = right.Count - c.kept.Of(k).Count
			sums[k] = &change
		}
	}
	if len(sums) == 0 {
		return progress, nil
	}
	return true, store.mendDigest(ctx, sums)
}
