-- What the ledger keeps of an effect is one statement each: one round trip, and nobody can be frozen in the middle of it.

-- The call's own row, else that of an equal effect of this run or of one that it branched from, settled ones first.
CREATE FUNCTION known_effect(run text, call text, called text, digested text, once_more boolean) RETURNS SETOF effects
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH RECURSIVE line (run_id, parent) AS (
        SELECT run_id, parent FROM runs WHERE run_id = run
        UNION SELECT r.run_id, r.parent FROM runs r JOIN line ON r.run_id = line.parent
    )
    SELECT e.* FROM effects e JOIN line USING (run_id)
    WHERE (e.run_id = run AND e.call_id = call) OR (e.tool = called AND e.digest = digested AND NOT once_more)
    ORDER BY (e.run_id = run AND e.call_id = call) DESC, e.state = 'settled' DESC, e.claimed_at LIMIT 1;
$$;

-- The row that was there before; none where this intent is the first.
CREATE FUNCTION claim_effect(
    run text, attempt bigint, call text, called text, digested text, given bytea, unique_key text, once_more boolean
) RETURNS SETOF effects LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_run(run, attempt);
    RETURN QUERY SELECT * FROM known_effect(run, call, called, digested, once_more);
    IF NOT FOUND THEN
        INSERT INTO effects (run_id, call_id, tool, digest, arguments, key, epoch, state)
        VALUES (run, call, called, digested, given, unique_key, attempt, 'claimed');
    END IF;
END $$;

-- What became of it, and the row as it then stands. An intent waits for the disk. What came of it need not: the step that
-- is saved on it does, and after a power cut in between the other side is asked as after any crash.
CREATE FUNCTION change_effect(run text, attempt bigint, call text, former text[], standing text, received bytea)
RETURNS SETOF effects LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_run(run, attempt);
    IF standing <> 'claimed' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    UPDATE effects SET state = standing, receipt = received, epoch = attempt,
        settled_at = CASE WHEN standing <> 'claimed' THEN clock_timestamp() END
    WHERE run_id = run AND call_id = call AND state = ANY (former);
    RETURN QUERY SELECT * FROM effects WHERE run_id = run AND call_id = call;
END $$;

CREATE FUNCTION release_effect(run text, attempt bigint, call text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_run(run, attempt);
    DELETE FROM effects WHERE run_id = run AND call_id = call AND state = 'claimed';
END $$;
