package hub

// A savepoint is a place in what ops have made of a state, to which it can be put
// back: an op that fails then leaves nothing behind.
type savepoint struct {
	undo, rows, written, revisions, links, signals, sums, more, waiting int
}

// savepoint returns the place that the state is at.
func (s *state) savepoint() savepoint {
	return savepoint{
		undo: len(s.undo), rows: len(s.rows.kind), written: len(s.written), revisions: len(s.revisions), links: len(s.newLinks),
		signals: len(s.newSignals), sums: len(s.sumOrder), more: len(s.more), waiting: len(s.waiting),
	}
}

// rollback puts the state back to a place that it was at.
func (s *state) rollback(to savepoint) {
	for i := len(s.undo) - 1; i >= to.undo; i-- {
		s.undo[i]()
	}
	s.undo = s.undo[:to.undo]
	s.rows.truncate(to.rows)
	s.written, s.revisions, s.newLinks = s.written[:to.written], s.revisions[:to.revisions], s.newLinks[:to.links]
	s.newSignals, s.sumOrder, s.more = s.newSignals[:to.signals], s.sumOrder[:to.sums], s.more[:to.more]
	s.waiting = s.waiting[:to.waiting]
}

// set puts a value into one of the state's maps, or changes it there.
func set[K comparable, V any](s *state, m map[K]V, k K, v V) {
	old, had := m[k]
	s.undo = append(s.undo, func() {
		if had {
			m[k] = old
		} else {
			delete(m, k)
		}
	})
	m[k] = v
}

// unset takes a key out of one of the state's maps.
func unset[K comparable, V any](s *state, m map[K]V, k K) {
	if old, had := m[k]; had {
		s.undo = append(s.undo, func() { m[k] = old })
		delete(m, k)
	}
}

// edit is to be called before a thing of the state is changed in place.
func edit[T any](s *state, thing *T) {
	old := *thing
	s.undo = append(s.undo, func() { *thing = old })
}

// truncate takes out the rows from the nth on.
func (r *changeRows) truncate(n int) {
	r.class, r.scope, r.kind, r.op, r.ref, r.revision = r.class[:n], r.scope[:n], r.kind[:n], r.op[:n], r.ref[:n], r.revision[:n]
	r.hash, r.prevHash, r.data = r.hash[:n], r.prevHash[:n], r.data[:n]
	// A row's event is added after the row, which may have failed between.
	n = min(n, len(r.eventType))
	r.eventType, r.eventRef, r.eventDetail = r.eventType[:n], r.eventRef[:n], r.eventDetail[:n]
}
