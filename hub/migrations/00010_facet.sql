-- +goose Up

-- What current artifacts hold at the pointers that their types declare as facets,
-- as artifact.FacetsOf makes it. Superseded ones, and those that are for their
-- participants alone, have none. A hub makes those of what was there before.
CREATE TABLE facet (
    type  text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,
    path  text COLLATE "C" NOT NULL,
    n     smallint NOT NULL,                      -- 0 for the one by which artifacts are sorted
    scope text COLLATE "C" NOT NULL,              -- of the artifact
    kind  "char" NOT NULL,
    num   double precision,
    text  text COLLATE "C",
    PRIMARY KEY (type, id, path, n)
);
-- Each row is in one of them.
CREATE INDEX facet_num ON facet (type, path, num, id, kind, n) WHERE num IS NOT NULL;
CREATE INDEX facet_text ON facet (type, path, text, id, kind, n) WHERE text IS NOT NULL;
CREATE INDEX facet_other ON facet (type, path, kind, id, n) WHERE num IS NULL AND text IS NULL;

-- How far the facets of a type are made.
CREATE TABLE facet_build (
    type     text COLLATE "C" PRIMARY KEY,
    declared text NOT NULL,                       -- by what they are made
    after    text COLLATE "C" NOT NULL,           -- the last id that was looked at
    done     boolean NOT NULL
);

-- +goose Down
DROP TABLE facet_build, facet;
