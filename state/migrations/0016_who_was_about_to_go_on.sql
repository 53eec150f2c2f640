-- A worker that dies between taking the job of a takeover and claiming the run is missed after two seconds, not after a
-- lease: a claim takes a tenth of that, also under load, and a job that is dropped while its worker lives does no harm.
CREATE OR REPLACE FUNCTION drop_orphaned_jobs(lease double precision) RETURNS bigint LANGUAGE sql AS $$
    WITH locks AS MATERIALIZED (SELECT held_locks() AS held), dropped AS (
        DELETE FROM procrastinate_jobs AS job USING runs AS run, locks
        WHERE job.status = 'doing' AND run.run_id = job.lock
            AND NOT is_alive(run.lock_key, run.heartbeat_at, lease, locks.held)
            AND (SELECT max(at) FROM procrastinate_events WHERE job_id = job.id AND type = 'started') < CASE
                WHEN run.status = 'running' THEN greatest(
                    (SELECT began_at FROM attempts WHERE run_id = run.run_id AND epoch = run.epoch),
                    clock_timestamp() - make_interval(secs => least(lease, 2))
                )
                WHEN run.updated_at < clock_timestamp() - make_interval(secs => lease)
                    THEN clock_timestamp() - make_interval(secs => lease)
            END
        RETURNING job.id
    )
    SELECT count(*) FROM dropped
$$;
