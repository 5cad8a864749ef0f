-- +goose Up

-- Which paper a PubMed id or a DOI means: one current paper in each scope.
CREATE TABLE paper_key (
    kind  text COLLATE "C" NOT NULL CHECK (kind IN ('pmid', 'doi')),
    key   text COLLATE "C" NOT NULL,            -- a DOI in lower case
    scope text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,            -- of the paper
    PRIMARY KEY (kind, key, scope)
);
CREATE INDEX paper_key_by_id ON paper_key (id);
INSERT INTO paper_key (kind, key, scope, id)
    SELECT DISTINCT ON (k.kind, k.key, a.scope) k.kind, k.key, a.scope, a.id
    FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
    CROSS JOIN LATERAL (VALUES
        ('pmid', coalesce(substring(a.id FROM '^PMID:([1-9][0-9]{0,7})$'), r.content::jsonb ->> 'pmid')),
        ('doi', lower(r.content::jsonb ->> 'doi'))) AS k (kind, key)
    WHERE a.type = 'paper' AND a.is_latest AND k.key IS NOT NULL AND k.key <> ''
    ORDER BY k.kind, k.key, a.scope, a.created_at, a.id;

-- +goose Down
DROP TABLE paper_key;
