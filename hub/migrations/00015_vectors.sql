-- +goose Up

-- What artifacts mean, by each model that is asked: the direction of their texts, a
-- signed byte a dimension. Current artifacts that all of their scope may see have
-- one, once it was made; retired and redacted ones have none.
CREATE TABLE artifact_vector (
    type      text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    model     text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,          -- of the artifact
    revision  integer NOT NULL,                   -- the last one that has the text
    rule      text COLLATE "C" NOT NULL,          -- which texts of it were taken, as analysis.Rule.ID
    text_hash bytea NOT NULL,                     -- SHA-256 of the text
    vector    bytea NOT NULL,
    PRIMARY KEY (type, id, model)
);

-- The models. Searches are by the one that serves: the first by which all were made.
CREATE TABLE vector_model (
    model  text COLLATE "C" PRIMARY KEY,
    dims   integer NOT NULL,
    serves boolean NOT NULL
);
CREATE UNIQUE INDEX vector_model_serves ON vector_model (serves) WHERE serves;

-- +goose Down
DROP TABLE vector_model, artifact_vector;
