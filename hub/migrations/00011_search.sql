-- +goose Up

-- The words of every current artifact, ready-made by the program. A row is written
-- with the head that it is of; an artifact of an earlier database gets its row in the
-- background, as does one whose type says anew what is searched. Retired artifacts
-- have none.
CREATE TABLE search_document (
    type     text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    rule     text COLLATE "C" NOT NULL,   -- how the words were made, as analysis.Rule.ID
    words    tsvector NOT NULL,
    PRIMARY KEY (type, id)
);
-- What a write adds waits in a list that a search reads whole: a short one.
CREATE INDEX search_document_words ON search_document USING gin (words) WITH (gin_pending_list_limit = 1024);

-- +goose Down
DROP TABLE search_document;
