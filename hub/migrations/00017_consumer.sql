-- +goose Up

-- Durable readers of events. Their rows change with every page that one reads, so
-- that they are in no index but the key's: a cursor moves within its page.
CREATE TABLE consumer_subscriptions (
    agent             text COLLATE "C" NOT NULL,
    consumer_id       text COLLATE "C" NOT NULL,
    filter_json       text NOT NULL,             -- {types, filter} as asked for
    epoch             integer NOT NULL,          -- of the log, when the cursor was set
    generation        bigint NOT NULL,           -- rises with each takeover and rewind
    cursor            bigint NOT NULL CHECK (cursor >= 0),
    session           text NOT NULL,             -- who reads with it
    dead_letter_count integer NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL,
    last_activity_at  timestamptz NOT NULL,
    PRIMARY KEY (agent, consumer_id)
) WITH (fillfactor = 50);

-- Events that a consumer gave back. One without dead_at is to be delivered again,
-- and delivered once it was; it goes when the consumer moves on.
CREATE TABLE consumer_refusal (
    agent       text COLLATE "C" NOT NULL,
    consumer_id text COLLATE "C" NOT NULL,
    event_id    bigint NOT NULL,
    refusals    integer NOT NULL,
    reason      text NOT NULL,
    dead_at     timestamptz,
    delivered   boolean NOT NULL,
    PRIMARY KEY (agent, consumer_id, event_id),
    FOREIGN KEY (agent, consumer_id) REFERENCES consumer_subscriptions ON DELETE CASCADE
);

-- +goose Down
DROP TABLE consumer_refusal;
DROP TABLE consumer_subscriptions;
