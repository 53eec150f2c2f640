-- Immutable bytes by their SHA-256. `size` is that of the bytes themselves, `compressed` says how `data` holds them.
create table artifacts (
    digest text primary key check (digest ~ '^[0-9a-f]{64}$'),
    size bigint not null check (size >= 0),
    compressed boolean not null,
    data bytea not null,
    created_at timestamptz not null default now()
);

-- What pays to be compressed comes compressed; the server need not try again.
alter table artifacts alter column data set storage external;
