-- +goose Up

-- The links that lead to an artifact, in the order in which they are listed: a page
-- of them is read without sorting all, whatever the planner knows.
CREATE INDEX link_to_in_order ON link (to_type, to_id, predicate, from_type, from_id, id);
DROP INDEX link_to;
ALTER INDEX link_to_in_order RENAME TO link_to;

-- +goose Down
CREATE INDEX link_to_from ON link (to_type, to_id, predicate, from_type, from_id);
DROP INDEX link_to;
ALTER INDEX link_to_from RENAME TO link_to;
