-- Times are microseconds since 1970 UTC. Enums are small integers, listed in codes.rs. What is common is NULL, which
-- takes no space in a row. Columns stand in the order of their width, so that none is padded.

-- The ways that executions take: one row for each pair of queue and job type that was ever used. New ones are written
-- under a lock on the table, so that numbers appear in their order and whoever knows all up to one needs only the rest.
CREATE TABLE lanes (
    id       bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    queue    text NOT NULL,
    job_type text NOT NULL,
    UNIQUE (queue, job_type)
);

CREATE TABLE workers (
    id   bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE
);

-- What people have set for queues. A queue without a row is open and has no limit.
CREATE TABLE queues (
    queue     text PRIMARY KEY,
    -- NULL: it hands out work.
    paused_at bigint,
    -- NULL: no limit.
    max_depth bigint
);

CREATE TABLE jobs (
    id            uuid PRIMARY KEY,
    lane          bigint NOT NULL,
    created_at    bigint NOT NULL,
    version       integer NOT NULL,
    mark          smallint NOT NULL,
    priority      smallint NOT NULL,
    schedule_type smallint NOT NULL,
    -- When a one-time job is to run.
    execute_at    bigint,
    -- NULL: never.
    updated_at    bigint,
    -- NULL: as long as there can only have been the first.
    numbered      bigint,
    -- NULL: none.
    fired         bigint,
    -- NULL: the default owner.
    owner         text,
    -- NULL: the same as the job type.
    name          text,
    -- NULL: all as by default.
    settings      text,
    payload       text NOT NULL
);
-- Lists of jobs that are paused, failed, cancelled or deleted; the rest is found through schedules and live.
CREATE INDEX jobs_marked ON jobs (mark, id) WHERE mark <> 0;

-- Jobs by their tags; only jobs that have some are here.
CREATE TABLE job_tags (
    tag text NOT NULL,
    job uuid NOT NULL,
    PRIMARY KEY (tag, job)
);
CREATE INDEX job_tags_job ON job_tags (job);

-- kind 0: idempotency_key, 1: unique_key.
CREATE TABLE job_keys (
    owner text NOT NULL,
    kind  smallint NOT NULL,
    key   text NOT NULL,
    job   uuid NOT NULL,
    PRIMARY KEY (owner, kind, key)
);
CREATE INDEX job_keys_job ON job_keys (job);

CREATE TABLE schedules (
    job           uuid PRIMARY KEY,
    lane          bigint NOT NULL,
    fired         bigint NOT NULL,
    version       integer NOT NULL,
    job_version   integer NOT NULL,
    segment       smallint NOT NULL,
    priority      smallint NOT NULL,
    overlap       smallint NOT NULL,
    -- 1: depends on other jobs; 2: other jobs depend on it.
    ties          smallint NOT NULL,
    -- NULL: held by a pause.
    due_at        bigint,
    -- NULL: the same as due_at; beside a replay: none, only the replay is left.
    nominal       bigint,
    -- NULL: as many as were fired.
    numbered      bigint,
    -- NULL: as by default.
    overlap_limit bigint,
    max_open      bigint,
    -- NULL: the default owner.
    owner         text,
    -- NULL: one time, at the nominal time.
    schedule      text,
    -- NULL: nothing that was missed is being made up for.
    replay        text,
    -- NULL: never.
    expiry        text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX schedules_due ON schedules (segment, due_at);

-- Open occurrences. Every row changes a few times within seconds and goes: the table is narrow, leaves room in its pages,
-- and is swept by its own measure, not by a share of what a backlog makes of it.
CREATE TABLE live (
    job              uuid NOT NULL,
    occurrence       bigint NOT NULL,
    lane             bigint NOT NULL,
    rank             bigint NOT NULL,
    available_at     bigint NOT NULL,
    scheduled_time   bigint NOT NULL,
    job_version      integer NOT NULL,
    attempt          integer NOT NULL,
    charged          integer NOT NULL,
    epoch            integer NOT NULL,
    segment          smallint NOT NULL,
    state            smallint NOT NULL,
    gates            smallint NOT NULL,
    priority         smallint NOT NULL,
    origin           smallint NOT NULL,
    -- The bit 128 says that the row is all that is left of an active job.
    ties             smallint NOT NULL,
    cancel_requested boolean NOT NULL,
    session          bigint,
    claimed_at       bigint,
    expires_at       bigint,
    -- When time will change something about the row: its time gate opens, or it expires.
    look_at          bigint,
    PRIMARY KEY (job, occurrence)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 10000);
-- Only what can be claimed now is in the claim index, so that it stays as small as the backlog.
CREATE INDEX live_claim ON live (lane, rank, job, occurrence) WHERE state = 1;
CREATE INDEX live_session ON live (session, job, occurrence) WHERE state = 2;
CREATE INDEX live_due ON live (segment, look_at) WHERE look_at IS NOT NULL;

-- Finished executions, in partitions by the time of their end, so that retention drops what is old as a whole.
CREATE TABLE history (
    job            uuid NOT NULL,
    occurrence     bigint NOT NULL,
    completed_at   bigint NOT NULL,
    -- Orders the commits: the number of the transaction above 20 bits for the rows within it.
    place          bigint NOT NULL,
    scheduled_time bigint NOT NULL,
    available_at   bigint NOT NULL,
    attempt        integer NOT NULL,
    epoch          integer NOT NULL,
    job_version    integer NOT NULL,
    status         smallint NOT NULL,
    origin         smallint NOT NULL,
    reason         smallint,
    started_at     bigint,
    session        bigint,
    worker         bigint,
    error          text,
    result         text,
    PRIMARY KEY (job, occurrence, attempt, completed_at)
) PARTITION BY RANGE (completed_at);
CREATE INDEX history_place ON history (place);

-- History is followed by its places; what was taken away is told.
CREATE TABLE history_bounds (
    id       integer PRIMARY KEY CHECK (id = 1),
    -- The highest place of a row that was deleted with its job.
    given    bigint NOT NULL,
    -- The highest place that retention has deleted.
    retained bigint NOT NULL
);
INSERT INTO history_bounds (id, given, retained) VALUES (1, 0, 0);

-- The partitions of history and lines, which are written and dropped as time passes.
CREATE TABLE partitions (
    parent text NOT NULL,
    starts bigint NOT NULL,
    ends   bigint NOT NULL,
    name   text NOT NULL UNIQUE,
    -- Whether it is being dropped, which takes several steps.
    leaves boolean NOT NULL,
    PRIMARY KEY (parent, starts)
);

CREATE TABLE dead_letters (
    number         bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    job            uuid NOT NULL,
    occurrence     bigint NOT NULL,
    scheduled_time bigint NOT NULL,
    died_at        bigint NOT NULL,
    attempts       integer NOT NULL,
    epoch          integer NOT NULL,
    origin         smallint NOT NULL,
    noted          boolean NOT NULL,
    error          text,
    UNIQUE (job, occurrence)
);
CREATE INDEX dead_letters_job ON dead_letters (job, number);

CREATE TABLE skipped (
    number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    job    uuid NOT NULL,
    first  bigint NOT NULL,
    last   bigint NOT NULL,
    count  bigint NOT NULL,
    reason smallint NOT NULL
);
CREATE INDEX skipped_job ON skipped (job, last);
CREATE INDEX skipped_last ON skipped (last);

-- Children that wait for a parent; a row goes when the parent has finished.
CREATE TABLE dependencies (
    parent uuid NOT NULL,
    child  uuid NOT NULL,
    PRIMARY KEY (parent, child)
);
CREATE INDEX dependencies_child ON dependencies (child);

-- Parents that have finished and whose children have not all been told.
CREATE TABLE resolutions (
    parent    uuid PRIMARY KEY,
    succeeded boolean NOT NULL
);

-- What handlers say of open and dead occurrences. Most say nothing and have no row; the bit 8 of live.ties, and the
-- column of a dead letter, say that there is one.
CREATE TABLE notes (
    job        uuid NOT NULL,
    occurrence bigint NOT NULL,
    -- The lease of the last note, and its number there: a late copy of an earlier one counts for nothing.
    number     bigint NOT NULL,
    noted_at   bigint NOT NULL,
    epoch      integer NOT NULL,
    -- The attempt that the progress is of.
    attempt    integer NOT NULL,
    -- In hundredths.
    percent    smallint,
    message    text,
    PRIMARY KEY (job, occurrence)
) WITH (fillfactor = 70);

-- Beside the notes, so that a word of progress does not write a large checkpoint anew.
CREATE TABLE checkpoints (
    job        uuid NOT NULL,
    occurrence bigint NOT NULL,
    -- JSON.
    document   text NOT NULL,
    PRIMARY KEY (job, occurrence)
);

-- Numbers are never given twice: a lease names its session long after the row is gone.
CREATE SEQUENCE session_numbers AS bigint;
-- Beats and turns change nothing that an index names, and find room in the same page.
CREATE TABLE sessions (
    id        bigint PRIMARY KEY,
    worker    bigint NOT NULL,
    lease_us  bigint NOT NULL,
    beat      bigint NOT NULL,
    turn      bigint NOT NULL,
    opened_at bigint NOT NULL,
    beaten_at bigint NOT NULL,
    slots     bigint NOT NULL,
    -- 0: open, 1: paused, 2: draining.
    mode      smallint NOT NULL,
    embedded  boolean NOT NULL,
    -- Whether the next beat has to look for leases that should be cancelled.
    attention boolean NOT NULL,
    lost      boolean NOT NULL,
    job_types text NOT NULL,
    -- NULL: all queues.
    queues    text,
    version   text,
    host      text
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Counts beside what they count, so that nobody has to count rows. Each connection adds to rows of its own, so that
-- commits do not wait for each other; readers sum them up.
CREATE TABLE lane_tallies (
    lane    bigint NOT NULL,
    waiting bigint NOT NULL,
    queued  bigint NOT NULL,
    running bigint NOT NULL,
    shard   smallint NOT NULL,
    PRIMARY KEY (lane, shard)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Jobs by status, of which deleted ones are not counted; and dead letters.
CREATE TABLE job_tally (
    shard        smallint PRIMARY KEY,
    active       bigint NOT NULL,
    paused       bigint NOT NULL,
    completed    bigint NOT NULL,
    failed       bigint NOT NULL,
    cancelled    bigint NOT NULL,
    dead_letters bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE requests (
    token       text NOT NULL,
    key         text NOT NULL,
    fingerprint bytea NOT NULL,
    begun_at    bigint NOT NULL,
    -- The bits of an unsigned number.
    seed        bigint NOT NULL,
    -- NULL: not answered yet.
    status      integer,
    location    text,
    body        text,
    PRIMARY KEY (token, key)
);
CREATE INDEX requests_begun ON requests (begun_at);

CREATE TABLE tokens (
    id            text PRIMARY KEY,
    secret_sha256 bytea NOT NULL,
    role          smallint NOT NULL,
    created_at    bigint NOT NULL
);

-- One row that is written to find out whether writing works.
CREATE TABLE probe (
    id integer PRIMARY KEY,
    at bigint NOT NULL
);

-- Log lines, in partitions by the time that their number is made of.
CREATE TABLE lines (
    job        uuid NOT NULL,
    occurrence bigint NOT NULL,
    -- The line's time in microseconds, or one more than the line before it.
    number     bigint NOT NULL,
    timestamp  bigint NOT NULL,
    attempt    integer NOT NULL,
    stream     smallint NOT NULL,
    message    text NOT NULL,
    PRIMARY KEY (job, occurrence, attempt, number)
) PARTITION BY RANGE (number);
