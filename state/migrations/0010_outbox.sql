-- What DevFix itself tells people of a run: written with the run's settlement, sent by whichever process is there.
CREATE TABLE outbox (
    run_id text NOT NULL,
    call_id text NOT NULL,
    standing text NOT NULL,
    step bigint NOT NULL,
    tool text NOT NULL,
    arguments bytea NOT NULL,
    key text NOT NULL UNIQUE,
    state text NOT NULL DEFAULT 'due'
        CHECK (state IN ('due', 'sending', 'settled', 'unknown', 'given_up', 'stale')),
    epoch bigint NOT NULL DEFAULT 0,
    holder json,
    tries bigint NOT NULL DEFAULT 0,
    missed boolean NOT NULL DEFAULT false,
    trouble text,
    receipt bytea,
    put_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_at timestamptz,
    settled_at timestamptz,
    PRIMARY KEY (run_id, call_id),
    CONSTRAINT settled_with_a_receipt CHECK ((state = 'settled') = (receipt IS NOT NULL))
);
CREATE INDEX outbox_open ON outbox (state, due_at) WHERE state IN ('due', 'sending');
