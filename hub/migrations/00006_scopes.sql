-- +goose Up

-- By which a follower's rows are found among those of other scopes, and the row
-- of a scope that stands before another.
CREATE INDEX change_by_scope ON feed.change (scope, seq) WHERE class = 'public';

-- The last public row of each scope among those that were trimmed, so that it is
-- still known which row stands before the first that is left.
CREATE TABLE feed.scope_last (
    scope text COLLATE "C" PRIMARY KEY,
    seq   bigint NOT NULL
);

-- +goose Down
DROP TABLE feed.scope_last;
DROP INDEX feed.change_by_scope;
