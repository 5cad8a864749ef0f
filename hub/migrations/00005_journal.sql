-- +goose Up

-- By which the journal is searched by time: entries come in about that order, so
-- that keeping it costs next to nothing.
CREATE INDEX write_journal_by_time ON write_journal USING brin (at) WITH (pages_per_range = 16);

-- The duels of a type, in their order.
CREATE INDEX signal_duels ON signal (type, id) WHERE kind = 'duel';

-- +goose Down
DROP INDEX write_journal_by_time, signal_duels;
