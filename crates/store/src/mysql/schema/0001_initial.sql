-- Times are microseconds since 1970 UTC. Enums are small integers, listed in codes.rs. What is common is NULL, which
-- takes no space in a row. Names compare byte by byte, spaces at their end included.
--
-- This server commits every statement of a definition by itself, so each can be run again after a crash.

-- The numbers that were given last. Whoever gives some holds the row until they are written, so that numbers appear in
-- their order, and none is given twice: a lease names its session long after the row is gone.
CREATE TABLE IF NOT EXISTS numbers (
    name  VARCHAR(20) NOT NULL,
    given BIGINT NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Whoever changes what is set for queues counts it here, and so has the turn.
INSERT INTO numbers (name, given) VALUES ('lane', 0), ('worker', 0), ('session', 0), ('queue', 0)
ON DUPLICATE KEY UPDATE given = given;

-- The ways that executions take: one row for each pair of queue and job type that was ever used.
CREATE TABLE IF NOT EXISTS lanes (
    id       BIGINT NOT NULL,
    queue    VARCHAR(200) NOT NULL,
    job_type VARCHAR(200) NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY lanes_name (queue, job_type)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS workers (
    id   BIGINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY workers_name (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- What people have set for queues. A queue without a row is open and has no limit.
CREATE TABLE IF NOT EXISTS queues (
    queue     VARCHAR(200) NOT NULL,
    -- NULL: it hands out work.
    paused_at BIGINT,
    -- NULL: no limit.
    max_depth BIGINT,
    -- Counted up by transactions that rely on the row and do not write it, on nodes of a Galera cluster only: they do not
    -- see each other's locks. The same holds for the columns of this name below.
    touched   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (queue)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS jobs (
    id            BINARY(16) NOT NULL,
    lane          BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    version       INT NOT NULL,
    mark          SMALLINT NOT NULL,
    priority      SMALLINT NOT NULL,
    schedule_type SMALLINT NOT NULL,
    -- When a one-time job is to run.
    execute_at    BIGINT,
    -- NULL: never.
    updated_at    BIGINT,
    -- NULL: as long as there can only have been the first.
    numbered      BIGINT,
    -- NULL: none.
    fired         BIGINT,
    -- NULL: the default owner.
    owner         VARCHAR(200),
    -- NULL: the same as the job type.
    name          VARCHAR(200),
    -- NULL: all as by default.
    settings      MEDIUMTEXT,
    payload       MEDIUMTEXT NOT NULL,
    PRIMARY KEY (id),
    -- Lists of jobs that are paused, failed, cancelled or deleted; the rest is found through schedules and live.
    KEY jobs_marked (mark, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- What `touched` is to other tables, beside the jobs: their rows may be large, and whoever writes one sends all of it to
-- the other nodes. Empty where there is no such cluster.
CREATE TABLE IF NOT EXISTS job_turns (
    job     BINARY(16) NOT NULL,
    touched BIGINT NOT NULL,
    PRIMARY KEY (job)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Jobs by their tags; only jobs that have some are here.
CREATE TABLE IF NOT EXISTS job_tags (
    tag VARCHAR(200) NOT NULL,
    job BINARY(16) NOT NULL,
    PRIMARY KEY (tag, job),
    KEY job_tags_job (job)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- kind 0: idempotency_key, 1: unique_key.
CREATE TABLE IF NOT EXISTS job_keys (
    owner VARCHAR(200) NOT NULL,
    kind  SMALLINT NOT NULL,
    `key` VARCHAR(255) NOT NULL,
    job   BINARY(16) NOT NULL,
    PRIMARY KEY (owner, kind, `key`),
    KEY job_keys_job (job)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS schedules (
    job           BINARY(16) NOT NULL,
    lane          BIGINT NOT NULL,
    fired         BIGINT NOT NULL,
    version       INT NOT NULL,
    job_version   INT NOT NULL,
    segment       SMALLINT NOT NULL,
    priority      SMALLINT NOT NULL,
    overlap       SMALLINT NOT NULL,
    -- 1: depends on other jobs; 2: other jobs depend on it.
    ties          SMALLINT NOT NULL,
    -- NULL: held by a pause.
    due_at        BIGINT,
    -- NULL: the same as due_at; beside a replay: none, only the replay is left.
    nominal       BIGINT,
    -- NULL: as many as were fired.
    numbered      BIGINT,
    -- NULL: as by default.
    overlap_limit BIGINT,
    max_open      BIGINT,
    -- NULL: the default owner.
    owner         VARCHAR(200),
    -- NULL: one time, at the nominal time.
    schedule      MEDIUMTEXT,
    -- NULL: nothing that was missed is being made up for.
    replay        MEDIUMTEXT,
    -- NULL: never.
    expiry        MEDIUMTEXT,
    PRIMARY KEY (job),
    KEY schedules_due (segment, due_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Open occurrences. Indexes of only some rows are not to be had here. What is not queued has no `queued_lane` instead, so
-- that it lies elsewhere in the claim index and a claim on an empty lane does not walk over it.
CREATE TABLE IF NOT EXISTS live (
    job              BINARY(16) NOT NULL,
    occurrence       BIGINT NOT NULL,
    lane             BIGINT NOT NULL,
    claim_rank       BIGINT NOT NULL,
    available_at     BIGINT NOT NULL,
    scheduled_time   BIGINT NOT NULL,
    job_version      INT NOT NULL,
    attempt          INT NOT NULL,
    charged          INT NOT NULL,
    epoch            INT NOT NULL,
    segment          SMALLINT NOT NULL,
    state            SMALLINT NOT NULL,
    gates            SMALLINT NOT NULL,
    priority         SMALLINT NOT NULL,
    origin           SMALLINT NOT NULL,
    -- The bit 128 says that the row is all that is left of an active job.
    ties             SMALLINT NOT NULL,
    cancel_requested TINYINT NOT NULL,
    -- The lane, of rows that can be claimed now.
    queued_lane      BIGINT,
    session          BIGINT,
    claimed_at       BIGINT,
    expires_at       BIGINT,
    -- When time will change something about the row: its time gate opens, or it expires.
    look_at          BIGINT,
    touched          BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (job, occurrence),
    KEY live_claim (queued_lane, claim_rank, job, occurrence),
    KEY live_session (session, job, occurrence),
    KEY live_due (segment, look_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Finished executions, in partitions by the time of their end, so that retention drops what is old as a whole. The
-- server wants the column of the partitions in every unique key.
CREATE TABLE IF NOT EXISTS history (
    -- Orders the commits, but for those that were under way at the same time.
    place          BIGINT NOT NULL AUTO_INCREMENT,
    job            BINARY(16) NOT NULL,
    occurrence     BIGINT NOT NULL,
    completed_at   BIGINT NOT NULL,
    scheduled_time BIGINT NOT NULL,
    available_at   BIGINT NOT NULL,
    attempt        INT NOT NULL,
    epoch          INT NOT NULL,
    job_version    INT NOT NULL,
    status         SMALLINT NOT NULL,
    origin         SMALLINT NOT NULL,
    reason         SMALLINT,
    started_at     BIGINT,
    session        BIGINT,
    worker         BIGINT,
    -- By the server's clock: whoever follows history waits behind a gap until what comes after it has settled.
    appended_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    error          MEDIUMTEXT,
    result         MEDIUMTEXT,
    PRIMARY KEY (place, completed_at),
    KEY history_job (job, occurrence, attempt)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */
PARTITION BY RANGE (completed_at) (PARTITION p_rest VALUES LESS THAN MAXVALUE);

-- History is followed by its places; what was taken away is told.
CREATE TABLE IF NOT EXISTS history_bounds (
    id       INT NOT NULL,
    -- The highest place of a row that was deleted with its job.
    given    BIGINT NOT NULL,
    -- The highest place that retention has deleted.
    retained BIGINT NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

INSERT INTO history_bounds (id, given, retained) VALUES (1, 0, 0) ON DUPLICATE KEY UPDATE id = id;

CREATE TABLE IF NOT EXISTS dead_letters (
    number         BIGINT NOT NULL AUTO_INCREMENT,
    job            BINARY(16) NOT NULL,
    occurrence     BIGINT NOT NULL,
    scheduled_time BIGINT NOT NULL,
    died_at        BIGINT NOT NULL,
    attempts       INT NOT NULL,
    epoch          INT NOT NULL,
    origin         SMALLINT NOT NULL,
    noted          TINYINT NOT NULL,
    error          MEDIUMTEXT,
    PRIMARY KEY (number),
    UNIQUE KEY dead_letters_occurrence (job, occurrence),
    KEY dead_letters_job (job, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS skipped (
    number BIGINT NOT NULL AUTO_INCREMENT,
    job    BINARY(16) NOT NULL,
    first  BIGINT NOT NULL,
    last   BIGINT NOT NULL,
    count  BIGINT NOT NULL,
    reason SMALLINT NOT NULL,
    PRIMARY KEY (number),
    KEY skipped_job (job, last),
    KEY skipped_last (last)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Children that wait for a parent; a row goes when the parent has finished.
CREATE TABLE IF NOT EXISTS dependencies (
    parent BINARY(16) NOT NULL,
    child  BINARY(16) NOT NULL,
    PRIMARY KEY (parent, child),
    KEY dependencies_child (child, parent)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Parents that have finished and whose children have not all been told.
CREATE TABLE IF NOT EXISTS resolutions (
    parent    BINARY(16) NOT NULL,
    succeeded TINYINT NOT NULL,
    PRIMARY KEY (parent)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- What handlers say of open and dead occurrences. Most say nothing and have no row; the bit 8 of live.ties, and the
-- column of a dead letter, say that there is one.
CREATE TABLE IF NOT EXISTS notes (
    job        BINARY(16) NOT NULL,
    occurrence BIGINT NOT NULL,
    -- The lease of the last note, and its number there: a late copy of an earlier one counts for nothing.
    number     BIGINT NOT NULL,
    noted_at   BIGINT NOT NULL,
    epoch      INT NOT NULL,
    -- The attempt that the progress is of.
    attempt    INT NOT NULL,
    -- In hundredths.
    percent    SMALLINT,
    message    MEDIUMTEXT,
    PRIMARY KEY (job, occurrence)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Beside the notes, so that a word of progress does not write a large checkpoint anew.
CREATE TABLE IF NOT EXISTS checkpoints (
    job        BINARY(16) NOT NULL,
    occurrence BIGINT NOT NULL,
    -- JSON.
    document   MEDIUMTEXT NOT NULL,
    PRIMARY KEY (job, occurrence)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS sessions (
    id        BIGINT NOT NULL,
    worker    BIGINT NOT NULL,
    lease_us  BIGINT NOT NULL,
    beat      BIGINT NOT NULL,
    turn      BIGINT NOT NULL,
    opened_at BIGINT NOT NULL,
    beaten_at BIGINT NOT NULL,
    slots     BIGINT NOT NULL,
    -- 0: open, 1: paused, 2: draining.
    mode      SMALLINT NOT NULL,
    embedded  TINYINT NOT NULL,
    -- Whether the next beat has to look for leases that should be cancelled.
    attention TINYINT NOT NULL,
    lost      TINYINT NOT NULL,
    job_types MEDIUMTEXT NOT NULL,
    -- NULL: all queues.
    queues    MEDIUMTEXT,
    version   TEXT,
    host      TEXT,
    touched   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    -- Without them, whoever locks such sessions would wait for every other one that beats.
    KEY sessions_lost (lost, id),
    KEY sessions_embedded (embedded, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Counts beside what they count, so that nobody has to count rows. Each connection adds to rows of its own, so that
-- commits do not wait for each other; readers sum them up.
CREATE TABLE IF NOT EXISTS lane_tallies (
    lane    BIGINT NOT NULL,
    shard   SMALLINT NOT NULL,
    waiting BIGINT NOT NULL,
    queued  BIGINT NOT NULL,
    running BIGINT NOT NULL,
    PRIMARY KEY (lane, shard)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Jobs by status, of which deleted ones are not counted; and dead letters.
CREATE TABLE IF NOT EXISTS job_tally (
    shard        SMALLINT NOT NULL,
    active       BIGINT NOT NULL,
    paused       BIGINT NOT NULL,
    completed    BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    cancelled    BIGINT NOT NULL,
    dead_letters BIGINT NOT NULL,
    PRIMARY KEY (shard)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS requests (
    token       VARCHAR(200) NOT NULL,
    `key`       VARCHAR(255) NOT NULL,
    fingerprint BINARY(32) NOT NULL,
    begun_at    BIGINT NOT NULL,
    -- The bits of an unsigned number.
    seed        BIGINT NOT NULL,
    -- NULL: not answered yet.
    status      INT,
    location    TEXT,
    body        LONGTEXT,
    PRIMARY KEY (token, `key`),
    KEY requests_begun (begun_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS tokens (
    id            VARCHAR(200) NOT NULL,
    secret_sha256 BINARY(32) NOT NULL,
    role          SMALLINT NOT NULL,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- One row that is written to find out whether writing works.
CREATE TABLE IF NOT EXISTS probe (
    id INT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Log lines, in partitions by the time that their number is made of. LINES is a word of the server's own.
CREATE TABLE IF NOT EXISTS log_lines (
    job        BINARY(16) NOT NULL,
    occurrence BIGINT NOT NULL,
    attempt    INT NOT NULL,
    -- The line's time in microseconds, or one more than the line before it.
    number     BIGINT NOT NULL,
    timestamp  BIGINT NOT NULL,
    stream     SMALLINT NOT NULL,
    message    MEDIUMTEXT NOT NULL,
    PRIMARY KEY (job, occurrence, attempt, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */
PARTITION BY RANGE (number) (PARTITION p_rest VALUES LESS THAN MAXVALUE);
