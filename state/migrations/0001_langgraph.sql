-- The checkpoint saver's tables: AsyncPostgresSaver.MIGRATIONS 0 to 9 of langgraph-checkpoint-postgres 3.2,
-- without CONCURRENTLY, which no transaction allows. A test compares them with what its setup() makes.

create table checkpoint_migrations (
    v integer primary key
);

create table checkpoints (
    thread_id text not null,
    checkpoint_ns text not null default '',
    checkpoint_id text not null,
    parent_checkpoint_id text,
    type text,
    checkpoint jsonb not null,
    metadata jsonb not null default '{}',
    primary key (thread_id, checkpoint_ns, checkpoint_id)
);

create table checkpoint_blobs (
    thread_id text not null,
    checkpoint_ns text not null default '',
    channel text not null,
    version text not null,
    type text not null,
    blob bytea,
    primary key (thread_id, checkpoint_ns, channel, version)
);

create table checkpoint_writes (
    thread_id text not null,
    checkpoint_ns text not null default '',
    checkpoint_id text not null,
    task_id text not null,
    idx integer not null,
    channel text not null,
    type text,
    blob bytea not null,
    task_path text not null default '',
    primary key (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

create index checkpoints_thread_id_idx on checkpoints (thread_id);
create index checkpoint_blobs_thread_id_idx on checkpoint_blobs (thread_id);
create index checkpoint_writes_thread_id_idx on checkpoint_writes (thread_id);

-- So that a setup() by somebody else finds nothing to do.
insert into checkpoint_migrations (v) select generate_series(0, 9);
