-- Queues: what people have set for them. A queue without a row is open and has no limit.
CREATE TABLE queues (
    queue     TEXT PRIMARY KEY NOT NULL,
    -- NULL: it hands out work.
    paused_at INTEGER,
    -- NULL: no limit.
    max_depth INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO queues (queue, paused_at) SELECT queue, paused_at FROM paused_queues;
DROP TABLE paused_queues;

-- History is followed by its numbers: none is given twice, and what retention took away is told.
CREATE TABLE history_bounds (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    -- The highest number that was ever given when rows were last deleted.
    given    INTEGER NOT NULL,
    -- The highest number that retention has deleted.
    retained INTEGER NOT NULL
) STRICT;
INSERT INTO history_bounds (id, given, retained)
SELECT 1, coalesce(max(seq), 0), coalesce(min(seq), 1) - 1 FROM history;

-- Jobs by their tags; only jobs that have some are here.
CREATE TABLE job_tags (
    tag TEXT NOT NULL,
    job BLOB NOT NULL,
    PRIMARY KEY (tag, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_tags_job ON job_tags (job);
INSERT OR IGNORE INTO job_tags (tag, job)
SELECT each.value, jobs.id FROM jobs, json_each(jobs.settings, '$.tags') AS each WHERE jobs.settings IS NOT NULL;

-- Sessions: who they are and what people have asked of them.
-- NULL: all queues.
ALTER TABLE sessions ADD COLUMN queues TEXT;
ALTER TABLE sessions ADD COLUMN version TEXT;
ALTER TABLE sessions ADD COLUMN host TEXT;
-- 0: open, 1: paused, 2: draining.
ALTER TABLE sessions ADD COLUMN mode INTEGER NOT NULL DEFAULT 0;

-- Counts beside what they count, so that nobody has to count rows. The bit 128 of live.ties, which no row has yet,
-- says that the row is all that is left of an active job.
-- Lanes in which anything is live.
CREATE TABLE lane_tallies (
    lane    INTEGER PRIMARY KEY,
    waiting INTEGER NOT NULL,
    queued  INTEGER NOT NULL,
    running INTEGER NOT NULL
) STRICT;
INSERT INTO lane_tallies (lane, waiting, queued, running)
SELECT lane, sum(state = 0), sum(state = 1), sum(state = 2) FROM live GROUP BY lane;

-- Jobs by status, of which deleted ones are not counted; and dead letters.
CREATE TABLE job_tally (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    active       INTEGER NOT NULL,
    paused       INTEGER NOT NULL,
    completed    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL,
    dead_letters INTEGER NOT NULL
) STRICT;
INSERT INTO job_tally (id, active, paused, completed, failed, cancelled, dead_letters)
SELECT 1, coalesce(sum(mark = 0 AND is_unfinished), 0), coalesce(sum(mark = 1 AND is_unfinished), 0),
       coalesce(sum(mark IN (0, 1) AND NOT is_unfinished), 0), coalesce(sum(mark = 2), 0), coalesce(sum(mark = 3), 0),
       (SELECT count(*) FROM dead_letters)
FROM (SELECT mark, id IN (SELECT job FROM schedules) OR id IN (SELECT job FROM live) AS is_unfinished FROM jobs);

-- Notes: what handlers say of open and dead occurrences. Most say nothing and have no row; the bit 8 of live.ties, and
-- the column of a dead letter, say that there is one.
CREATE TABLE notes (
    job        BLOB NOT NULL,
    occurrence INTEGER NOT NULL,
    -- The attempt that the progress is of.
    attempt    INTEGER NOT NULL,
    -- The lease of the last note, and its number there: a late copy of an earlier one counts for nothing.
    epoch      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    noted_at   INTEGER NOT NULL,
    -- In hundredths.
    percent    INTEGER,
    message    TEXT,
    PRIMARY KEY (job, occurrence)
) STRICT, WITHOUT ROWID;

-- Beside the notes, so that a word of progress does not write a large checkpoint anew.
CREATE TABLE checkpoints (
    job        BLOB NOT NULL,
    occurrence INTEGER NOT NULL,
    -- JSON.
    document   TEXT NOT NULL,
    PRIMARY KEY (job, occurrence)
) STRICT, WITHOUT ROWID;

ALTER TABLE dead_letters ADD COLUMN noted INTEGER NOT NULL DEFAULT 0;
