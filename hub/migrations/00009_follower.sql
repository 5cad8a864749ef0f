-- +goose Up

-- How far enrolled nodes have come, so that the log is kept for them.
CREATE TABLE feed.follower (
    node     text PRIMARY KEY REFERENCES edge_node (id),
    seq      bigint NOT NULL,
    moved_at timestamptz NOT NULL,                -- when seq last rose, or was at the head
    seen_at  timestamptz NOT NULL
);

-- +goose Down
DROP TABLE feed.follower;
