-- +goose Up

-- By which is found what the log says of one thing: as of when an artifact was how,
-- and what became of a link. What hangs on a thing and changes nothing of it, most
-- of the log, is left out; a query says so in the same words.
CREATE INDEX event_by_ref ON event (split_part(ref COLLATE "C", '@', 1), seq)
    WHERE right(type, 9) <> '.signaled' AND right(type, 10) <> '.commented' AND right(type, 7) <> '.linked';

-- +goose Down
DROP INDEX event_by_ref;
