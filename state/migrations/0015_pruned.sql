-- A run that was pruned keeps its status, its report, its effects, its approvals and what each call cost; its states
-- and files are gone, and it can't be gone on with.
ALTER TABLE runs ADD COLUMN pruned_at timestamptz;
CREATE INDEX runs_to_prune ON runs (updated_at) WHERE pruned_at IS NULL;
