-- A step saved by an attempt says that the run is running, whatever its state says: how it ended, with the report and
-- whatever is told of it, is for the settlement. A process that dies between the two leaves a run that reads as
-- crashed, and who goes on with it finds nothing to do but to settle it.
CREATE OR REPLACE FUNCTION record_step(
    run text, attempt bigint, checkpoint text, parent text, origin text, ran text[], standing text, cause text,
    files text, cost double precision, used bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    following bigint;
    inside boolean;
BEGIN
    -- A save whose commit got no answer is repeated by the same attempt: it is one step all the same.
    SELECT number INTO following FROM steps WHERE run_id = run AND checkpoint_id = checkpoint AND epoch = attempt;
    IF FOUND THEN
        RETURN following;
    END IF;
    inside := EXISTS (SELECT FROM attempts WHERE run_id = run AND epoch = attempt);
    UPDATE runs SET step = step + 1, status = CASE WHEN inside THEN 'running' ELSE standing END,
        reason = CASE WHEN NOT inside THEN cause END, cost_usd = cost, tokens = used,
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
