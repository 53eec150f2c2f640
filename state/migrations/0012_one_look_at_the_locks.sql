-- pg_locks is read once a look instead of once a run: with 30 runs under way a look took 200 ms.

CREATE FUNCTION held_locks() RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(classid::bigint << 32 | objid::bigint), '{}')
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
$$;

CREATE FUNCTION is_alive(lock bigint, beat timestamptz, lease double precision, held bigint[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT lock IS NOT NULL
        AND beat > clock_timestamp() - make_interval(secs => lease)
        AND (pg_postmaster_start_time() > beat OR lock = ANY(held))
$$;

CREATE OR REPLACE FUNCTION drop_orphaned_jobs(lease double precision) RETURNS bigint LANGUAGE sql AS $$
    WITH locks AS MATERIALIZED (SELECT held_locks() AS held), dropped AS (
        DELETE FROM procrastinate_jobs AS job USING runs AS run, locks
        WHERE job.status = 'doing' AND run.run_id = job.lock
            AND NOT is_alive(run.lock_key, run.heartbeat_at, lease, locks.held)
            AND (SELECT max(at) FROM procrastinate_events WHERE job_id = job.id AND type = 'started') < CASE
                WHEN run.status = 'running' THEN greatest(
                    (SELECT began_at FROM attempts WHERE run_id = run.run_id AND epoch = run.epoch),
                    clock_timestamp() - make_interval(secs => lease)
                )
                WHEN run.updated_at < clock_timestamp() - make_interval(secs => lease)
                    THEN clock_timestamp() - make_interval(secs => lease)
            END
        RETURNING job.id
    )
    SELECT count(*) FROM dropped
$$;

CREATE OR REPLACE FUNCTION runs_without_anybody(lease double precision)
RETURNS TABLE (run_id text, epoch bigint, holder json, crashes bigint) LANGUAGE sql STABLE AS $$
    WITH locks AS MATERIALIZED (SELECT held_locks() AS held)
    SELECT run.run_id, run.epoch, run.holder, crashes_in_a_row(run.run_id)
    FROM runs AS run, locks
    WHERE run.status IN ('queued', 'running', 'waiting')
        AND CASE run.status
            WHEN 'running' THEN NOT is_alive(run.lock_key, run.heartbeat_at, lease, locks.held)
            WHEN 'queued' THEN run.due_at <= clock_timestamp()
            ELSE run.reason IN ('approval', 'escalation')
                AND run.updated_at < clock_timestamp() - make_interval(secs => lease)
                AND is_answered(run.run_id)
                AND NOT EXISTS (
                    SELECT FROM approvals AS answer WHERE answer.run_id = run.run_id AND awaited
                        AND decided_at > clock_timestamp() - make_interval(secs => lease)
                )
        END
        AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = run.run_id AND status = 'doing')
        AND NOT EXISTS (
            SELECT FROM procrastinate_jobs WHERE queueing_lock = run.run_id || ':advance' AND status = 'todo'
        )
$$;
