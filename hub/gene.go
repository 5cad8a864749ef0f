package hub

import (
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

const geneType = "gene"

// anyGene stands for the genes of a scope, whichever they are.
var anyGene = citation{Kind: artifact.CiteGene}

// formerGene is the kind of a name that is or was a gene's besides its symbol.
const formerGene artifact.CitationKind = "former_gene"

const (
	// A gene's id is its symbol; in a private scope that comes after the scope's id.
	genesQuery = `
		SELECT k.symbol, a.scope, a.id, false
		FROM unnest($2::text[]) AS k (symbol)
		CROSS JOIN LATERAL (SELECT k.symbol AS id UNION ALL SELECT s.id || '/' || k.symbol FROM unnest($1::text[]) AS s (id)) n
		JOIN artifact a ON a.type = 'gene' AND a.id = n.id
		WHERE a.scope = ANY ($1) AND a.is_latest
		UNION ALL
		SELECT k.symbol, a.scope, a.id, true
		FROM unnest($2::text[]) AS k (symbol)
		JOIN artifact_revision r ON r.type = 'gene' AND (r.content::jsonb -> 'synonyms') ? k.symbol
		JOIN artifact a ON a.type = 'gene' AND a.id = r.id AND a.revision = r.revision
		WHERE a.scope = ANY ($1) AND a.is_latest`
	anyGeneQuery = `
		SELECT s.id
		FROM unnest($1::text[]) AS s (id)
		WHERE EXISTS (SELECT FROM artifact a WHERE a.type = 'gene' AND a.scope = s.id AND a.scope = ANY ($1) AND a.is_latest)`
)

// queueGenes reads which symbols are those of genes, in some scopes.
func (p papers) queueGenes(b *pgx.Batch, scopes, symbols []string) {
	b.Queue(genesQuery, scopes, symbols).Query(func(rows pgx.Rows) error {
		var symbol, scope, id string
		var former bool
		_, err := pgx.ForEachRow(rows, []any{&symbol, &scope, &id, &former}, func() error {
			k := paperIn{citation{Kind: artifact.CiteGene, ID: symbol}, scope}
			if former {
				k.Kind = formerGene
			}
			if known, ok := p[k]; !ok || id < known { // two genes may have had one name
				p[k] = id
			}
			return nil
		})
		return err
	})
	b.Queue(anyGeneQuery, scopes).Query(func(rows pgx.Rows) error {
		var scope string
		_, err := pgx.ForEachRow(rows, []any{&scope}, func() error {
			p[paperIn{anyGene, scope}] = geneType
			return nil
		})
		return err
	})
}

// addGene notes a new gene, for what is written after it in the transaction.
func (s *state) addGene(id, scope string) {
	symbol := strings.TrimPrefix(id, scope+"/")
	set(s, s.papers, paperIn{citation{Kind: artifact.CiteGene, ID: symbol}, scope}, id)
	set(s, s.papers, paperIn{anyGene, scope}, geneType)
}

// addSynonyms notes the names of a new or changed gene besides its symbol.
func (s *state) addSynonyms(id, scope string, content []byte) {
	var named struct{ Synonyms []string }
	_ = json.Unmarshal(content, &named) // the schema has checked it
	for _, name := range named.Synonyms {
		set(s, s.papers, paperIn{citation{Kind: formerGene, ID: name}, scope}, id)
	}
}

// check runs the validators over a content for what is here, as all who see a scope
// may know it.
func (p papers) check(n *artifact.Inspection, scope string) (refused, shadowed []artifact.Problem) {
	refused, shadowed = n.Check(p.known(n.Lookups(), scope), "/content")
	for _, problems := range [][]artifact.Problem{refused, shadowed} {
		for i := range problems {
			p.renamed(&problems[i], scope)
		}
	}
	return refused, shadowed
}

// renamed says of a symbol that names no gene which gene's name it was.
func (p papers) renamed(problem *artifact.Problem, scope string) {
	var symbol string
	if problem.Constraint != artifact.GuardResolveGene || json.Unmarshal(problem.Value, &symbol) != nil {
		return
	}
	id := p.in(scope, citation{Kind: formerGene, ID: symbol})
	if id == "" {
		return
	}
	current := id[strings.LastIndexByte(id, '/')+1:]
	problem.Message += "; it is or was a name of " + geneType + ":" + id
	if _, ok := artifact.CiteGene.Normalize(current); ok {
		problem.Suggestion = artifact.Received(current)
	}
}
