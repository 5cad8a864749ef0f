package hub

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const paperType = "paper"

// A citation is what a PubMed id or DOI is looked up by. DOIs are in lower case.
type citation = artifact.Lookup

const (
	papersQuery = `
		SELECT p.kind, p.key, p.scope, p.id
		FROM paper_key p JOIN unnest($2::text[], $3::text[]) AS k (kind, key) ON p.kind = k.kind AND p.key = k.key
		WHERE p.scope = ANY ($1)`
	insertPaperKeysQuery = `
		INSERT INTO paper_key (kind, key, scope, id)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])`
	deletePaperKeysQuery = `DELETE FROM paper_key WHERE id = ANY ($1)`
	// Where another has one of its keys a paper does not move: see sharedPapers.
	movePaperKeyQuery = `
		WITH moved AS (DELETE FROM paper_key WHERE id = $1 RETURNING kind, key, id)
		INSERT INTO paper_key (kind, key, scope, id) SELECT kind, key, $2, id FROM moved`
)

// paperKeys returns what a paper is cited by: the ids in its content and, in
// commons, its own id.
func paperKeys(id string, content []byte) (keys []citation) {
	var c struct{ PMID, DOI string }
	_ = json.Unmarshal(content, &c) // the schema has checked it; else there are none
	add := func(kind artifact.CitationKind, text string) {
		if key, ok := kind.Meant(text); ok { // a DOI is often kept as a URL
			if l := (citation{Kind: kind, ID: key}); !slices.Contains(keys, l) {
				keys = append(keys, l)
			}
		}
	}
	if scope, local, ok := strings.Cut(id, "/"); ok && verb.ValidScope(scope) {
		id = local // it keeps the scope that it was made in, wherever it moves
	}
	if n, ok := strings.CutPrefix(id, "PMID:"); ok {
		add(artifact.CitePMID, n)
	}
	if n, ok := strings.CutPrefix(id, "DOI:"); ok {
		add(artifact.CiteDOI, n)
	}
	add(artifact.CitePMID, c.PMID)
	add(artifact.CiteDOI, c.DOI)
	return keys
}

// checkPaperID returns what is wrong with an id that names a PubMed record.
func checkPaperID(id string) *artifact.Problem {
	text, ok := strings.CutPrefix(id, "PMID:")
	if !ok {
		return nil
	}
	if _, ok = artifact.CitePMID.Normalize(text); ok {
		return nil
	}
	p := &artifact.Problem{Path: "/id", Constraint: "pmid", Message: "an id that begins with PMID: goes on with a PubMed id: 1 to 8 digits that do not begin with 0", Value: artifact.Received(id)}
	if meant, ok := artifact.CitePMID.Meant(text); ok {
		p.Suggestion = artifact.Received("PMID:" + meant)
	}
	return p
}

// paperID returns the id that a new paper has by what it is cited by: PMID:<n>, or
// DOI:<doi>; "" for one that has neither.
func paperID(content []byte) string {
	id := ""
	for _, k := range paperKeys("", content) {
		if k.Kind == artifact.CitePMID {
			return "PMID:" + k.ID
		}
		id = "DOI:" + k.ID
	}
	return id
}

// keyKind is the kind of a citation in the table.
func keyKind(k artifact.CitationKind) string { return strings.ToLower(string(k)) }

// queue reads which papers are cited, in some scopes.
func (p papers) queue(b *pgx.Batch, scopes []string, cited map[citation]bool) {
	var kinds, keys, symbols []string
	for c := range cited {
		if c.Kind == artifact.CiteGene {
			symbols = append(symbols, c.ID)
			continue
		}
		kinds, keys = append(kinds, keyKind(c.Kind)), append(keys, c.ID)
	}
	if symbols != nil {
		p.queueGenes(b, scopes, symbols)
	}
	if keys == nil {
		return
	}
	b.Queue(papersQuery, scopes, kinds, keys).Query(func(rows pgx.Rows) error {
		var kind, key, scope, id string
		_, err := pgx.ForEachRow(rows, []any{&kind, &key, &scope, &id}, func() error {
			p[paperIn{citation{Kind: artifact.CitationKind(kind), ID: key}, scope}] = id
			return nil
		})
		return err
	})
}

// A paperIn is what a paper is cited by in a scope.
type paperIn struct {
	citation
	scope string
}

// papers tells which paper a citation means in a scope.
type papers map[paperIn]string

// in returns the paper that a citation means to all who see a scope: one in it or
// in commons; "" for none.
func (p papers) in(scope string, c citation) string {
	return cmp.Or(p[paperIn{c, scope}], p[paperIn{c, artifact.Commons}])
}

// known returns which citations resolve to a paper or gene that all who see a scope
// may know of. Where there are no genes at all, nothing is told of any.
func (p papers) known(lookups []citation, scope string) map[citation]bool {
	known := make(map[citation]bool, len(lookups))
	for _, l := range lookups {
		known[l] = p.in(scope, l) != "" || l.Kind == artifact.CiteGene && p.in(scope, anyGene) == ""
	}
	return known
}

// claimPaper notes what a paper is cited by from now on, or refuses one that is
// here already.
func (s *state) claimPaper(ref artifact.Ref, scope string, keys []citation) error {
	if problems := s.takenPapers(ref, scope, keys); problems != nil {
		return artifact.Invalid(problems...)
	}
	for _, k := range keys {
		set(s, s.papers, paperIn{k, scope}, ref.ID)
		set(s, s.papersMade, paperIn{k, scope}, ref.ID)
	}
	return nil
}

// takenPapers returns what keeps a paper from being cited by some keys: those that
// another has.
func (s *state) takenPapers(ref artifact.Ref, scope string, keys []citation) (problems []artifact.Problem) {
	for _, k := range keys {
		if id := s.papers[paperIn{k, scope}]; id != "" && id != ref.ID {
			problems = append(problems, artifact.Problem{
				Path: "/content/" + keyKind(k.Kind), Constraint: "unique", Value: artifact.Received(k.ID),
				Message: "this paper is here already: " + paperType + ":" + id,
			})
		}
	}
	return problems
}

// disclaimPaper notes that a paper is cited by nothing from now on.
func (s *state) disclaimPaper(id string) {
	set(s, s.papersGone, id, true)
	for _, m := range []papers{s.papers, s.papersMade} {
		for k, of := range m {
			if of == id {
				unset(s, m, k)
			}
		}
	}
}

// queuePaperKeys queues what papers are cited by from now on: new rows in the
// order of their keys, like those of [writes.queue].
func (w *writes) queuePaperKeys(b *pgx.Batch) {
	if len(w.papersGone) > 0 {
		b.Queue(deletePaperKeysQuery, keysOf(w.papersGone))
	}
	if len(w.papersMade) == 0 {
		return
	}
	made := slices.SortedFunc(maps.Keys(w.papersMade), func(x, y paperIn) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.ID, y.ID), cmp.Compare(x.scope, y.scope))
	})
	var kinds, keys, scopes, ids []string
	for _, k := range made {
		kinds, keys = append(kinds, keyKind(k.Kind)), append(keys, k.ID)
		scopes, ids = append(scopes, k.scope), append(ids, w.papersMade[k])
	}
	b.Queue(insertPaperKeysQuery, kinds, keys, scopes, ids)
}
