CREATE TABLE runs (
    run_id text PRIMARY KEY,
    goal text NOT NULL DEFAULT '',
    job text NOT NULL DEFAULT '',
    model text,
    status text NOT NULL DEFAULT 'queued',
    reason text DEFAULT 'new',
    report json,
    epoch bigint NOT NULL DEFAULT 0,
    step bigint NOT NULL DEFAULT 0,
    holder json,
    lock_key bigint,
    heartbeat_at timestamptz,
    cancel_requested_by text,
    parent text,
    branched_at bigint,
    cost_usd double precision NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT status_has_its_reason CHECK (
        (status = 'queued' AND reason IN ('new', 'released', 'crashed'))
        OR (status = 'running' AND reason IS NULL)
        OR (status = 'waiting' AND reason IN ('approval', 'escalation', 'upgrade'))
        OR (status = 'completed' AND reason IN ('done', 'nothing_to_do'))
        OR (status = 'failed' AND reason IN ('budget', 'step_limit', 'deadline', 'model_unavailable',
            'unparsable_output', 'refused', 'invalid_state', 'tests_unreachable', 'internal'))
        OR (status = 'cancelled' AND reason = 'by_person')
    )
) WITH (fillfactor = 70);
CREATE INDEX runs_newest ON runs (created_at DESC);

CREATE TABLE steps (
    run_id text NOT NULL,
    number bigint NOT NULL,
    checkpoint_id text NOT NULL,
    parent_id text,
    epoch bigint NOT NULL,
    source text NOT NULL,
    nodes text[] NOT NULL,
    status text,
    snapshot text,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, number),
    UNIQUE (run_id, checkpoint_id)
);

-- The fence: refuse whoever is not the run's present attempt. The row lock orders a save before or after the
-- claim that ends its attempt, never beside it.
CREATE FUNCTION hold_run(run text, attempt bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM runs WHERE run_id = run AND epoch = attempt FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % does not hold run %', attempt, run USING ERRCODE = 'DF001';
    END IF;
END $$;

-- One saved superstep: the fence, the run's next number and its row, in the transaction of the checkpoint.
CREATE FUNCTION record_step(
    run text, attempt bigint, checkpoint text, parent text, origin text, ran text[], standing text, cause text,
    files text, cost double precision, used bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    following bigint;
BEGIN
    -- A save whose commit got no answer is repeated by the same attempt: it is one step all the same.
    SELECT number INTO following FROM steps WHERE run_id = run AND checkpoint_id = checkpoint AND epoch = attempt;
    IF FOUND THEN
        RETURN following;
    END IF;
    UPDATE runs SET step = step + 1, status = standing, reason = cause, cost_usd = cost, tokens = used,
        heartbeat_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE run_id = run AND epoch = attempt
    RETURNING step INTO following;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % does not hold run %', attempt, run USING ERRCODE = 'DF001';
    END IF;
    INSERT INTO steps (run_id, number, checkpoint_id, parent_id, epoch, source, nodes, status, snapshot)
    VALUES (run, following, checkpoint, parent, attempt, origin, ran, standing, files);
    RETURN following;
END $$;

CREATE TABLE attempts (
    run_id text NOT NULL,
    epoch bigint NOT NULL,
    holder json NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    outcome text,
    PRIMARY KEY (run_id, epoch)
);

-- Alive is who holds the attempt's advisory lock and whose heartbeat is fresh. A server that was restarted since
-- the last beat has forgotten its locks, so there the heartbeat alone speaks until the holder has locked again.
CREATE FUNCTION is_alive(lock bigint, beat timestamptz, lease double precision) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT lock IS NOT NULL
        AND beat > clock_timestamp() - make_interval(secs => lease)
        AND (
            pg_postmaster_start_time() > beat
            OR EXISTS (
                SELECT 1 FROM pg_locks
                WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND (classid::bigint << 32 | objid::bigint) = lock
            )
        )
$$;
