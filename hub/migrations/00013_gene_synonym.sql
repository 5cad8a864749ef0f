-- +goose Up

-- By which names genes are or were known besides their symbols.
CREATE INDEX gene_synonym ON artifact_revision USING gin ((content::jsonb -> 'synonyms')) WITH (fastupdate = off) WHERE type = 'gene';

-- +goose Down
DROP INDEX gene_synonym;
