-- Times are microseconds since 1970 UTC. Enums are small integers, listed in rows.rs. What is common is NULL or
-- zero, because both take no space in a row.

-- The ways that executions take: one row for each pair of queue and job type that was ever used.
CREATE TABLE lanes (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL,
    job_type TEXT NOT NULL,
    UNIQUE (queue, job_type)
) STRICT;

CREATE TABLE workers (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE jobs (
    id            BLOB PRIMARY KEY NOT NULL,
    lane          INTEGER NOT NULL,
    mark          INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    priority      INTEGER NOT NULL,
    schedule_type INTEGER NOT NULL,
    -- When a one-time job is to run.
    execute_at    INTEGER,
    created_at    INTEGER NOT NULL,
    -- NULL: never.
    updated_at    INTEGER,
    -- NULL: the default owner.
    owner         TEXT,
    -- NULL: the same as the job type.
    name          TEXT,
    -- NULL: all as by default.
    settings      TEXT,
    payload       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Lists of jobs that are paused, failed or cancelled; the rest is found through schedules and live.
CREATE INDEX jobs_marked ON jobs (mark, id) WHERE mark <> 0;

CREATE TABLE schedules (
    job         BLOB PRIMARY KEY NOT NULL,
    segment     INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    -- NULL: the same as due_at; beside a replay: none, only the replay is left.
    nominal     INTEGER,
    fired       INTEGER NOT NULL,
    job_version INTEGER NOT NULL,
    lane        INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    overlap     INTEGER NOT NULL,
    -- NULL: the default owner.
    owner       TEXT,
    -- NULL: one time, at the nominal time.
    schedule    TEXT,
    -- NULL: nothing that was missed is being made up for.
    replay      TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_due ON schedules (segment, due_at);

CREATE TABLE live (
    job              BLOB NOT NULL,
    occurrence       INTEGER NOT NULL,
    segment          INTEGER NOT NULL,
    lane             INTEGER NOT NULL,
    state            INTEGER NOT NULL,
    gates            INTEGER NOT NULL,
    rank             INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    available_at     INTEGER NOT NULL,
    scheduled_time   INTEGER NOT NULL,
    origin           INTEGER NOT NULL,
    job_version      INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    charged          INTEGER NOT NULL,
    epoch            INTEGER NOT NULL,
    session          INTEGER,
    claimed_at       INTEGER,
    cancel_requested INTEGER NOT NULL,
    PRIMARY KEY (job, occurrence)
) STRICT, WITHOUT ROWID;

-- Only what can be claimed now is in the claim index, so that it stays as small as the backlog.
CREATE INDEX live_claim ON live (lane, rank) WHERE state = 1;
CREATE INDEX live_session ON live (session) WHERE state = 2;
CREATE INDEX live_due ON live (segment, available_at) WHERE state = 0 AND (gates & 1) = 1;

-- Appended to in the order of completion, so that the oldest rows lie together for retention.
CREATE TABLE history (
    seq            INTEGER PRIMARY KEY,
    job            BLOB NOT NULL,
    occurrence     INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    epoch          INTEGER NOT NULL,
    status         INTEGER NOT NULL,
    origin         INTEGER NOT NULL,
    job_version    INTEGER NOT NULL,
    scheduled_time INTEGER NOT NULL,
    available_at   INTEGER NOT NULL,
    started_at     INTEGER,
    completed_at   INTEGER NOT NULL,
    session        INTEGER,
    worker         INTEGER,
    error          TEXT,
    result         TEXT
) STRICT;

CREATE UNIQUE INDEX history_job ON history (job, occurrence, attempt);

CREATE TABLE dead_letters (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    job        BLOB NOT NULL,
    occurrence INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    died_at    INTEGER NOT NULL,
    error      TEXT
) STRICT;

CREATE TABLE skipped (
    seq    INTEGER PRIMARY KEY,
    job    BLOB NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    reason INTEGER NOT NULL
) STRICT;

CREATE INDEX skipped_job ON skipped (job, last);

CREATE TABLE sessions (
    -- Never reused: a lease names its session long after the row is gone.
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    worker    INTEGER NOT NULL,
    lease_us  INTEGER NOT NULL,
    embedded  INTEGER NOT NULL,
    job_types TEXT NOT NULL,
    slots     INTEGER NOT NULL,
    beat      INTEGER NOT NULL,
    turn      INTEGER NOT NULL,
    -- Whether the next beat has to look for leases that should be cancelled.
    attention INTEGER NOT NULL,
    lost      INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    beaten_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    id            TEXT PRIMARY KEY NOT NULL,
    secret_sha256 BLOB NOT NULL,
    role          INTEGER NOT NULL,
    created_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row that is written to find out whether writing works.
CREATE TABLE probe (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT;
