-- What each step and each effect goes through touches one row of each table, however many there are, and whether or not
-- PostgreSQL has gathered statistics yet: of a young table it takes an index for good whose first column alone fits.

-- An index on a time that each step changes made each step a new entry in all four indexes of the table. Pruning reads
-- the table once, which is quick enough.
DROP INDEX runs_to_prune;

-- The rule in a form that takes PostgreSQL half as long to read, which it does anew for each statement that changes a row;
-- and one that refuses a missing reason, which the former let pass.
ALTER TABLE runs DROP CONSTRAINT status_has_its_reason;
ALTER TABLE runs ADD CONSTRAINT status_has_its_reason CHECK (
    (reason IS NULL) = (status = 'running')
    AND status || ':' || coalesce(reason, '') = ANY ('{
        queued:new, queued:released, queued:crashed, running:, waiting:approval, waiting:escalation, waiting:upgrade,
        completed:done, completed:nothing_to_do, failed:budget, failed:step_limit, failed:deadline,
        failed:model_unavailable, failed:unparsable_output, failed:refused, failed:invalid_state,
        failed:tests_unreachable, failed:internal, cancelled:by_person
    }'::text[])
);

-- An effect's own row was sought among all effects of its run, by the first column of this index.
DROP INDEX effects_alike;
CREATE INDEX effects_alike ON effects (digest);

-- Migration 0013 brought back the search for the checkpoint, which migration 0007 had left without an index: each step
-- read all steps of its run. A save that is repeated is always the run's last step, which is found by its number.
CREATE OR REPLACE FUNCTION record_step(
    run text, attempt bigint, checkpoint text, parent text, origin text, ran text[], standing text, cause text,
    files text, cost double precision, used bigint
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    following bigint;
    inside boolean;
BEGIN
    -- A save whose commit got no answer is repeated by the same attempt: it is one step all the same.
    SELECT number INTO following FROM steps
        WHERE run_id = run AND number = (SELECT step FROM runs WHERE run_id = run)
            AND checkpoint_id = checkpoint AND epoch = attempt;
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

-- The call's own row, else that of an equal effect of this run or of one that it branched from, settled ones first.
CREATE OR REPLACE FUNCTION known_effect(run text, call text, called text, digested text, once_more boolean)
RETURNS SETOF effects LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY SELECT * FROM effects WHERE run_id = run AND call_id = call;
    IF FOUND OR once_more THEN
        RETURN;
    END IF;
    RETURN QUERY WITH RECURSIVE line (run_id, parent) AS (
        SELECT r.run_id, r.parent FROM runs r WHERE r.run_id = run
        UNION SELECT r.run_id, r.parent FROM runs r JOIN line ON r.run_id = line.parent
    )
    SELECT e.* FROM effects e WHERE e.digest = digested AND e.tool = called AND e.run_id IN (SELECT run_id FROM line)
    ORDER BY e.state = 'settled' DESC, e.claimed_at LIMIT 1;
END $$;

-- What became of it, and the row as it then stands. An intent waits for the disk. What came of it need not: the step that
-- is saved on it does, and after a power cut in between the other side is asked as after any crash.
CREATE OR REPLACE FUNCTION change_effect(
    run text, attempt bigint, call text, former text[], standing text, received bytea
) RETURNS SETOF effects LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_run(run, attempt);
    IF standing <> 'claimed' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY UPDATE effects SET state = standing, receipt = received, epoch = attempt,
        settled_at = CASE WHEN standing <> 'claimed' THEN clock_timestamp() END
    WHERE run_id = run AND call_id = call AND state = ANY (former)
    RETURNING *;
    IF NOT FOUND THEN
        RETURN QUERY SELECT * FROM effects WHERE run_id = run AND call_id = call;
    END IF;
END $$;

-- A record of a call, with the plan of its insertion kept from one step to the next.
CREATE OR REPLACE FUNCTION record_call(
    run text, attempt bigint, at_step bigint, sort text, called text, call text, asked bytea, answered bytea, trouble text,
    tokens_in bigint, tokens_out bigint, cost double precision, began timestamptz, ended timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO trace (run_id, epoch, step, kind, name, call_id, request, result, error,
        input_tokens, output_tokens, cost_usd, started_at, ended_at)
    VALUES (run, attempt, at_step, sort, called, call, asked, answered, trouble, tokens_in, tokens_out, cost, began, ended);
END $$;
