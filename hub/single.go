package hub

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A singleKey is what may have one live link: a predicate of cardinality one, from
// one artifact.
type singleKey struct {
	from      artifact.Ref
	predicate string
}

// A singleLink is a live link of such a predicate, by whomever.
type singleLink struct{ id, scope string }

// singlesQuery runs once the heads are locked: whoever makes the next such link
// waits there, and then finds this one. Links to what is for its participants
// alone count for nobody.
const singlesQuery = `
	SELECT l.from_type, l.from_id, l.predicate, l.id, l.scope
	FROM link l JOIN unnest($2::text[], $3::text[], $4::text[]) AS k (from_type, from_id, predicate)
		ON l.from_type = k.from_type AND l.from_id = k.from_id AND l.predicate = k.predicate
	WHERE l.scope = ANY ($1)
		AND NOT EXISTS (SELECT FROM artifact t WHERE t.type = l.to_type AND t.id = l.to_id AND t.audience = 'participants')
	ORDER BY l.id`

// needSingle locks the head that a link of cardinality one is from.
func (n *needs) needSingle(key singleKey) {
	if _, ok := n.write[key.from]; !ok {
		n.write[key.from] = false
	}
	n.singles[key] = true
}

func (l *loaded) queueSingles(b *pgx.Batch, n *needs) {
	if len(n.singles) == 0 {
		return
	}
	var types, ids, predicates []string
	for k := range n.singles {
		l.singles[k] = nil
		types, ids, predicates = append(types, k.from.Type), append(ids, k.from.ID), append(predicates, k.predicate)
	}
	b.Queue(singlesQuery, n.seen, types, ids, predicates).Query(func(rows pgx.Rows) error {
		var k singleKey
		var link singleLink
		_, err := pgx.ForEachRow(rows, []any{&k.from.Type, &k.from.ID, &k.predicate, &link.id, &link.scope}, func() error {
			l.singles[k] = append(l.singles[k], link)
			return nil
		})
		return err
	})
}

// checkSingle refuses a second live link where there may be one: the same triple
// by another agent is a second one too. Whoever sees the new link sees the one that
// is named, which is in its scope or in commons; links in other scopes are neither
// told nor in the way.
func (s *state) checkSingle(key triple, scope string, from *head) error {
	single := singleKey{key.from, key.predicate}
	known, read := s.singles[single]
	if !read && !from.created {
		return errStaleSchemas // the predicate took many when the op was made
	}
	if _, same := s.links[key]; same {
		return nil
	}
	i := slices.IndexFunc(known, func(l singleLink) bool { return l.scope == scope || l.scope == artifact.Commons })
	if i < 0 {
		return nil
	}
	ref := replicate.LinkType + ":" + known[i].id
	return artifact.Invalid(artifact.Problem{
		Path: "/to", Constraint: "cardinality", Value: artifact.Received(key.to.String()),
		Message: key.predicate + " leads to one artifact, and there is " + ref + " already: take it back first",
	})
}

// linked notes a new link, for those that come after it in the transaction.
func (s *state) linked(key triple, id, scope string, single bool) {
	set(s, s.links, key, id)
	if !single {
		return
	}
	k := singleKey{key.from, key.predicate}
	set(s, s.singles, k, append(slices.Clone(s.singles[k]), singleLink{id, scope}))
}

// unlinked notes that a link was taken back.
func (s *state) unlinked(key triple, id string) {
	if s.links[key] == id {
		unset(s, s.links, key)
	}
	k := singleKey{key.from, key.predicate}
	if known, read := s.singles[k]; read {
		set(s, s.singles, k, slices.DeleteFunc(slices.Clone(known), func(l singleLink) bool { return l.id == id }))
	}
}
