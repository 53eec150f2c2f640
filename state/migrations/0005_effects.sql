CREATE TABLE effects (
    run_id text NOT NULL,
    call_id text NOT NULL,
    tool text NOT NULL,
    digest text NOT NULL,
    arguments bytea NOT NULL,
    key text NOT NULL UNIQUE,
    epoch bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('claimed', 'settled', 'unknown')),
    receipt bytea,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    PRIMARY KEY (run_id, call_id),
    CONSTRAINT settled_with_a_receipt CHECK ((state = 'settled') = (receipt IS NOT NULL))
);
CREATE INDEX effects_alike ON effects (run_id, tool, digest);
