-- +goose Up

-- Up to where events are no longer kept. It moves in the transaction that deletes
-- them, whose rows in the log tell followers so.
CREATE TABLE feed.event_floor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    seq bigint NOT NULL
);
INSERT INTO feed.event_floor (seq) VALUES (0);

-- +goose Down
DROP TABLE feed.event_floor;
