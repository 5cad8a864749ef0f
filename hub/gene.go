package hub

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
)

const geneType = "gene"

// anyGene stands for the genes of a scope, whichever they are.
var anyGene = citation{Kind: artifact.CiteGene}

const (
	// A gene's id is its symbol; in a private scope that comes after the scope's id.
	genesQuery = `
		SELECT k.symbol, a.scope, a.id
		FROM unnest($2::text[]) AS k (symbol)
		CROSS JOIN LATERAL (SELECT k.symbol AS id UNION ALL SELECT s.id || '/' || k.symbol FROM unnest($1::text[]) AS s (id)) n
		JOIN artifact a ON a.type = 'gene' AND a.id = n.id
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
		_, err := pgx.ForEachRow(rows, []any{&symbol, &scope, &id}, func() error {
			p[paperIn{citation{Kind: artifact.CiteGene, ID: symbol}, scope}] = id
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
