CREATE TABLE trace (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text NOT NULL,
    epoch bigint NOT NULL,
    step bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('model', 'tool')),
    name text NOT NULL,
    call_id text NOT NULL,
    request bytea,
    result bytea,
    error text,
    input_tokens bigint,
    output_tokens bigint,
    cost_usd double precision,
    started_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL
);
CREATE INDEX trace_of_run ON trace (run_id, id);
