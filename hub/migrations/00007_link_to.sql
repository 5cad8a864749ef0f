-- +goose Up
-- Looking for one link to an artifact that many lead to takes one step by either
-- index of links, whichever the planner picks.
CREATE INDEX link_to_from ON link (to_type, to_id, predicate, from_type, from_id);
DROP INDEX link_to;
ALTER INDEX link_to_from RENAME TO link_to;

-- +goose Down
CREATE INDEX link_to_one ON link (to_type, to_id, predicate);
DROP INDEX link_to;
ALTER INDEX link_to_one RENAME TO link_to;
