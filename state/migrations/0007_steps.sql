-- A save that is repeated is always the run's last step, so its row is found by number, and steps need no index by
-- checkpoint beside it: a quarter of what a step took.
ALTER TABLE steps DROP CONSTRAINT steps_run_id_checkpoint_id_key;

CREATE OR REPLACE FUNCTION record_step(
    run text, attempt bigint, checkpoint text, parent text, origin text, ran text[], standing text, cause text,
    files text, cost double precision, used bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    following bigint;
BEGIN
    -- A save whose commit got no answer is repeated by the same attempt: it is one step all the same.
    SELECT s.number INTO following FROM runs r JOIN steps s ON s.run_id = r.run_id AND s.number = r.step
        WHERE r.run_id = run AND s.checkpoint_id = checkpoint AND s.epoch = attempt;
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
