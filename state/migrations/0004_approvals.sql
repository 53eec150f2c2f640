CREATE TABLE approvals (
    run_id text NOT NULL,
    call_id text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('call', 'escalation')),
    position integer NOT NULL,
    tool text NOT NULL,
    arguments bytea NOT NULL,
    bound bytea NOT NULL,
    digest text NOT NULL,
    allowed text[] NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    decision text CHECK (decision IN ('approve', 'edit', 'reject', 'respond')),
    content bytea,
    decided_by text,
    decided_at timestamptz,
    PRIMARY KEY (run_id, call_id),
    CONSTRAINT decided_as_a_whole CHECK (
        (decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL)
    )
);
