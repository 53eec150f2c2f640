-- absent: it was tried, failed, and the other side says that it did not happen. The row keeps its key, so that the same
-- effect, tried again, is first looked for under it: a slow server may still do what it was asked.
ALTER TABLE effects DROP CONSTRAINT effects_state_check;
ALTER TABLE effects ADD CONSTRAINT effects_state_check CHECK (state IN ('claimed', 'settled', 'unknown', 'absent'));
