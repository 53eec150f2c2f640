-- An escalation does not expire: only a person ends a run that asks one for help.
ALTER TABLE approvals ALTER COLUMN expires_at DROP NOT NULL;
UPDATE approvals SET expires_at = NULL WHERE kind = 'escalation';
