-- A call's record is one statement, and does not wait for the disk. Whatever acts on the call commits after it (its step,
-- the intent of an effect), and that commit waits for all that was written before: so a record is never missing of what
-- is there. Only a call that nothing had followed yet may be asked once more after a power cut.
CREATE FUNCTION record_call(
    run text, attempt bigint, at_step bigint, sort text, called text, call text, asked bytea, answered bytea, trouble text,
    tokens_in bigint, tokens_out bigint, cost double precision, began timestamptz, ended timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO trace (run_id, epoch, step, kind, name, call_id, request, result, error,
        input_tokens, output_tokens, cost_usd, started_at, ended_at)
    VALUES (run, attempt, at_step, sort, called, call, asked, answered, trouble, tokens_in, tokens_out, cost, began, ended);
END $$;
