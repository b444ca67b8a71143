-- Control: pausing, triggers, overlap policies, expiry, keys, dependencies, requests.

ALTER TABLE jobs ADD COLUMN numbered INTEGER;
-- NULL: none.
ALTER TABLE jobs ADD COLUMN fired INTEGER;

-- due_at becomes NULL while a job is paused; the table is written anew, because SQLite cannot drop a constraint.
CREATE TABLE schedules_2 (
    job           BLOB PRIMARY KEY NOT NULL,
    segment       INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    -- NULL: held by a pause.
    due_at        INTEGER,
    -- NULL: the same as due_at; beside a replay: none, only the replay is left.
    nominal       INTEGER,
    fired         INTEGER NOT NULL,
    job_version   INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    priority      INTEGER NOT NULL,
    overlap       INTEGER NOT NULL,
    -- NULL: the default owner.
    owner         TEXT,
    -- NULL: one time, at the nominal time.
    schedule      TEXT,
    -- NULL: nothing that was missed is being made up for.
    replay        TEXT,
    -- NULL: as many as were fired.
    numbered      INTEGER,
    -- NULL: as by default.
    overlap_limit INTEGER,
    max_open      INTEGER,
    -- NULL: never.
    expiry        TEXT,
    -- 1: depends on other jobs; 2: other jobs depend on it.
    ties          INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO schedules_2 (job, segment, version, due_at, nominal, fired, job_version, lane, priority, overlap, owner,
                         schedule, replay)
SELECT job, segment, version, due_at, nominal, fired, job_version, lane, priority, overlap, owner, schedule, replay
FROM schedules;

DROP TABLE schedules;
ALTER TABLE schedules_2 RENAME TO schedules;
CREATE INDEX schedules_due ON schedules (segment, due_at);

ALTER TABLE live ADD COLUMN expires_at INTEGER;
-- When time will change something about the row: its time gate opens, or it expires.
ALTER TABLE live ADD COLUMN look_at INTEGER;
ALTER TABLE live ADD COLUMN ties INTEGER NOT NULL DEFAULT 0;
DROP INDEX live_due;
UPDATE live SET look_at = available_at WHERE state = 0 AND (gates & 1) = 1;
CREATE INDEX live_due ON live (segment, look_at) WHERE look_at IS NOT NULL;

ALTER TABLE history ADD COLUMN reason INTEGER;

-- What another attempt of a dead occurrence needs, kept for as long as the dead letter.
ALTER TABLE dead_letters ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead_letters ADD COLUMN scheduled_time INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead_letters ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;
UPDATE dead_letters SET
    epoch = coalesce((SELECT max(h.epoch) FROM history AS h
                      WHERE h.job = dead_letters.job AND h.occurrence = dead_letters.occurrence), 1000000),
    scheduled_time = coalesce((SELECT max(h.scheduled_time) FROM history AS h
                               WHERE h.job = dead_letters.job AND h.occurrence = dead_letters.occurrence), died_at);
CREATE UNIQUE INDEX dead_letters_occurrence ON dead_letters (job, occurrence);
CREATE INDEX dead_letters_job ON dead_letters (job);

-- Children that wait for a parent; a row goes when the parent has finished.
CREATE TABLE dependencies (
    parent BLOB NOT NULL,
    child  BLOB NOT NULL,
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_child ON dependencies (child);

-- Parents that have finished and whose children have not all been told.
CREATE TABLE resolutions (
    parent    BLOB PRIMARY KEY NOT NULL,
    succeeded INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- kind 0: idempotency_key, 1: unique_key.
CREATE TABLE job_keys (
    owner TEXT NOT NULL,
    kind  INTEGER NOT NULL,
    key   TEXT NOT NULL,
    job   BLOB NOT NULL,
    PRIMARY KEY (owner, kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_keys_job ON job_keys (job);

CREATE TABLE paused_queues (
    queue     TEXT PRIMARY KEY NOT NULL,
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    token       TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    begun_at    INTEGER NOT NULL,
    seed        INTEGER NOT NULL,
    -- NULL: not answered yet.
    status      INTEGER,
    location    TEXT,
    body        TEXT,
    PRIMARY KEY (token, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_begun ON requests (begun_at);
