-- +goose Up

-- What the mailbox knows of a message beside its artifact.
CREATE TABLE mail (
    message  text COLLATE "C" PRIMARY KEY,          -- id of the artifact of type message
    thread   text COLLATE "C" NOT NULL,             -- id of the message that the thread began with
    sender   text COLLATE "C" NOT NULL,
    priority text NOT NULL CHECK (priority IN ('low', 'normal', 'high')),
    sent_at  timestamptz NOT NULL,
    everyone boolean NOT NULL                       -- a broadcast: it has a delivery only once someone acknowledges it
);
CREATE INDEX mail_by_thread ON mail (thread, sent_at DESC, message DESC);
CREATE INDEX mail_by_sender ON mail (sender, sent_at DESC, message DESC);
CREATE INDEX mail_broadcast ON mail (sent_at DESC, message DESC) WHERE everyone;

-- Whom a message reached: of a group or a role, who was in it when it was sent.
CREATE TABLE delivery (
    recipient text COLLATE "C" NOT NULL,
    message   text COLLATE "C" NOT NULL REFERENCES mail (message),
    sent_at   timestamptz NOT NULL,                 -- as the message's
    status    text NOT NULL CHECK (status IN ('pending', 'read', 'completed', 'rejected')),
    ack_at    timestamptz,                          -- of the last change of status; null while pending
    response  text NOT NULL,                        -- '' for none
    PRIMARY KEY (message, recipient),
    CHECK ((status = 'pending') = (ack_at IS NULL))
);
CREATE INDEX delivery_by_recipient ON delivery (recipient, sent_at DESC, message DESC);
CREATE INDEX delivery_open ON delivery (recipient, sent_at DESC, message DESC) WHERE status IN ('pending', 'read');

-- Messages from before: each begins a thread.
INSERT INTO mail (message, thread, sender, priority, sent_at, everyone)
    SELECT a.id, a.id, a.created_by, coalesce(nullif(r.content, '')::jsonb ->> 'priority', 'normal'), a.created_at,
        EXISTS (SELECT FROM participant p WHERE p.type = a.type AND p.id = a.id AND p.agent = '*')
    FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = 1
    WHERE a.type = 'message';
INSERT INTO delivery (recipient, message, sent_at, status, response)
    SELECT p.agent, m.message, m.sent_at, 'pending', ''
    FROM mail m JOIN participant p ON p.type = 'message' AND p.id = m.message
    WHERE p.agent NOT IN ('*', m.sender);

-- +goose Down
DROP TABLE delivery, mail;
