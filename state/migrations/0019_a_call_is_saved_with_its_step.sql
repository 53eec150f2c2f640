-- A call is recorded in the statement that saves its step: the step and the record are both there, or neither. A record
-- that travels so must not take its transaction's wait for the disk away, as it did while it was a statement of its own.
CREATE OR REPLACE FUNCTION record_call(
    run text, attempt bigint, at_step bigint, sort text, called text, call text, asked bytea, answered bytea, trouble text,
    tokens_in bigint, tokens_out bigint, cost double precision, began timestamptz, ended timestamptz
) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO trace (run_id, epoch, step, kind, name, call_id, request, result, error,
        input_tokens, output_tokens, cost_usd, started_at, ended_at)
    VALUES (run, attempt, at_step, sort, called, call, asked, answered, trouble, tokens_in, tokens_out, cost, began, ended);
$$;
