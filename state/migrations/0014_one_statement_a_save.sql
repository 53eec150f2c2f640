-- A save is one statement: one round trip, and a transaction of its own that begins and ends with it. Functions that
-- are called by it bring their search path, because no other statement has set it.

ALTER FUNCTION hold_run SET search_path FROM CURRENT;
ALTER FUNCTION record_step SET search_path FROM CURRENT;

CREATE FUNCTION save_writes(
    run text, namespace text, checkpoint text,
    tasks text[], paths text[], places int[], channels text[], kinds text[], blobs bytea[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO checkpoint_writes AS kept
        (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
    SELECT run, namespace, checkpoint, task, path, place, channel, kind, blob
    FROM unnest(tasks, paths, places, channels, kinds, blobs) AS given (task, path, place, channel, kind, blob)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    -- Errors, interrupts and answers have places below zero; the last of them counts, of all others the first.
    DO UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob WHERE kept.idx < 0;
END $$;

CREATE FUNCTION save_checkpoint(
    run text, namespace text, checkpoint text, parent text, stored jsonb, facts jsonb,
    tasks text[], paths text[], places int[], channels text[], kinds text[], blobs bytea[],
    changed text[], versions text[], changed_kinds text[], changed_blobs bytea[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF tasks IS NOT NULL THEN
        PERFORM save_writes(run, namespace, parent, tasks, paths, places, channels, kinds, blobs);
    END IF;
    IF changed IS NOT NULL THEN
        INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
        SELECT run, namespace, channel, version, kind, blob
        FROM unnest(changed, versions, changed_kinds, changed_blobs) AS given (channel, version, kind, blob)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
    VALUES (run, namespace, checkpoint, parent, stored, facts)
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
    DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata;
END $$;
