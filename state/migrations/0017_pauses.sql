-- Models that nobody asks for a while, because a server said that it is too much: see state/pauses.py.
CREATE TABLE pauses (
    model text PRIMARY KEY,
    until timestamptz NOT NULL,
    strikes bigint NOT NULL DEFAULT 1,
    trial_until timestamptz
);
