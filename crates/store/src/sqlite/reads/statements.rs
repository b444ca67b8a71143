//! The statements that read. A query about a list runs its statement for each row of the list: here, many
//! keys in one statement would save nothing.

use crate::codecs::settings_columns;
use crate::layout::{
    each_lane_count, each_limiter_count, sqlite_audit_columns as audit_columns,
    sqlite_dead_letter_columns as dead_letter_columns, sqlite_document_columns as document_columns,
    sqlite_history_columns as history_columns, sqlite_job_columns as job_columns,
    sqlite_live_columns as live_columns, sqlite_schedule_columns as schedule_columns,
    sqlite_secret_columns as secret_columns, sqlite_token_columns as token_columns,
    sqlite_user_columns as user_columns,
};
use crate::reads::ReadKind;
use crate::reads::rows::{candidate_columns, session_columns};
use crate::sqlite::counters::JOB_COUNTERS;
use crate::sqlite::tx::{CHECKPOINT, from_dead_letters};

/// A subquery, because in a join SQLite scans all sessions once its statistics were taken with few of them.
macro_rules! worker_of_live {
    () => {
        ", (SELECT name FROM workers WHERE id = (SELECT worker FROM sessions WHERE id = live.session)) "
    };
}

macro_rules! from_history {
    () => {
        ", workers.name FROM history LEFT JOIN workers ON workers.id = history.worker "
    };
}

macro_rules! candidates {
    ($which:literal) => {
        concat!("SELECT ", candidate_columns!(), " FROM ", $which)
    };
}

/// The latest jobs with open or future occurrences: both are read, and then the jobs.
pub(crate) const ACTIVE_LIVE: &str =
    "SELECT DISTINCT job FROM live WHERE job < ?1 ORDER BY job DESC LIMIT ?2";
pub(crate) const ACTIVE_SCHEDULES: &str =
    "SELECT job FROM schedules WHERE job < ?1 ORDER BY job DESC LIMIT ?2";

/// The statement of each read.
macro_rules! statements {
    ($($read:ident = $sql:expr;)*) => {
        pub(crate) const fn statement(read: ReadKind) -> &'static str {
            match read {
                $(ReadKind::$read => $sql,)*
                ReadKind::Clock | ReadKind::ErrorsOfLetters => panic!("no part of any verb"),
                ReadKind::ActiveJobs => panic!("several statements"),
            }
        }
    };
}

statements! {
    Sizes = "SELECT page_count * page_size, freelist_count * page_size, 0 \
         FROM pragma_page_count(), pragma_page_size(), pragma_freelist_count()";
    StoredNumber = "SELECT at FROM probe WHERE id = ?1";
    Lanes = "SELECT id, queue, job_type FROM lanes WHERE id = ?1";
    DueSchedules = "SELECT due_at, lane, job, version FROM schedules \
         WHERE segment = ?1 AND due_at <= ?2 ORDER BY due_at LIMIT ?3";
    DueLive = "SELECT look_at, lane, job, occurrence, attempt FROM live \
         WHERE segment = ?1 AND look_at IS NOT NULL AND look_at <= ?2 ORDER BY look_at LIMIT ?3";
    Sessions = concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions JOIN workers ON workers.id = sessions.worker \
         LEFT JOIN session_conditions ON session_conditions.session = sessions.id WHERE sessions.lost = 0 ORDER BY sessions.id"
    );
    TokenOfSession = "SELECT token FROM sessions WHERE id = ?1";
    Holdings = "SELECT session, count(*) FROM live WHERE state = 2 GROUP BY session ORDER BY session";
    Queues = "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue";
    // One statement, because the heads of the queues must match the counters. The lanes with queued
    // executions are counted once; [`crate::lists::heads_looked_at`] determines how much of a head is read.
    Depths = concat!(
        "SELECT lane, ",
        each_lane_count!(", ", "", ""),
        ", CASE WHEN queued > 0 THEN \
         (SELECT min(available_at) FROM (SELECT available_at FROM live WHERE live.lane = lane_tallies.lane AND live.state = 1 \
         ORDER BY live.rank, live.job, live.occurrence \
         LIMIT max(1, min(?2, ?1 / max(1, (SELECT count(*) FROM lane_tallies AS busy WHERE busy.queued > 0)))))) END \
         FROM lane_tallies ORDER BY lane"
    );
    JobCounts = JOB_COUNTERS;
    Ahead = "SELECT (SELECT count(*) FROM (SELECT 1 FROM live AS earlier \
         WHERE earlier.lane = live.lane AND earlier.state = 1 \
         AND (earlier.rank, earlier.job, earlier.occurrence) < (live.rank, ?1, ?2) LIMIT ?3)) \
         FROM live WHERE live.job = ?1 AND live.occurrence = ?2 AND live.state = 1";
    Token = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id = ?1");
    Tokens = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id > ?1 ORDER BY id LIMIT ?2");
    User = concat!("SELECT ", user_columns!(), " FROM users WHERE id = ?1");
    UserByEmail = concat!("SELECT ", user_columns!(), " FROM users WHERE email = ?1");
    Users = concat!("SELECT ", user_columns!(), " FROM users WHERE id > ?1 ORDER BY id LIMIT ?2");
    Secret = concat!("SELECT ", secret_columns!(), " FROM secrets WHERE id = ?1");
    Secrets = concat!("SELECT ", secret_columns!(), " FROM secrets WHERE id > ?1 ORDER BY id LIMIT ?2");
    Document = concat!("SELECT ", document_columns!(), " FROM documents WHERE id = ?1");
    Documents = concat!("SELECT ", document_columns!(), " FROM documents WHERE id > ?1 ORDER BY id LIMIT ?2");
    WaitingLines = "SELECT limiter, (SELECT lane FROM live WHERE live.line = limiter_tallies.limiter LIMIT 1) \
         FROM limiter_tallies WHERE waiting > 0 AND limiter > ?1 ORDER BY limiter LIMIT ?2";
    Started = "SELECT ?1, CAST(total(lane_tallies.queued) + total(lane_tallies.running) AS INTEGER) \
         FROM lanes JOIN lane_tallies ON lane_tallies.lane = lanes.id WHERE lanes.queue = ?1";
    Limiters = concat!(
        "SELECT ?1, ",
        each_limiter_count!(", ", "coalesce((SELECT ", " FROM limiter_tallies WHERE limiter = ?1), 0)"),
        ", (SELECT last_at FROM limiter_paces WHERE limiter = ?1)"
    );
    NotesOfJob = "SELECT notes.occurrence, notes.attempt, notes.percent, notes.message, \
         notes.noted_at, (SELECT length(CAST(document AS BLOB)) FROM checkpoints \
         WHERE checkpoints.job = notes.job AND checkpoints.occurrence = notes.occurrence) \
         FROM notes WHERE notes.job = ?1 AND notes.occurrence <= ?2 ORDER BY notes.occurrence DESC LIMIT ?3";
    Checkpoint = CHECKPOINT;
    LatestJobs = candidates!("jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
    MarkedJobs = candidates!("jobs WHERE mark = ?3 AND mark <> 0 AND id < ?1 ORDER BY id DESC LIMIT ?2");
    // A cross join, which makes SQLite start with the tag.
    TaggedJobs = candidates!(
        "job_tags CROSS JOIN jobs ON jobs.id = job_tags.job \
         WHERE job_tags.tag = ?3 AND job_tags.job < ?1 ORDER BY job_tags.job DESC LIMIT ?2"
    );
    ScheduledJobs = candidates!(
        "schedules CROSS JOIN jobs ON jobs.id = schedules.job \
         WHERE schedules.job < ?1 ORDER BY schedules.job DESC LIMIT ?2"
    );
    OneJob = candidates!("jobs WHERE id = ?1");
    StandingOfJobs = "SELECT ?1, EXISTS (SELECT 1 FROM live WHERE job = ?1) \
         OR EXISTS (SELECT 1 FROM schedules WHERE job = ?1)";
    TagsOfJobs = "SELECT job, tag FROM job_tags WHERE job = ?1";
    Jobs = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");
    Schedules = concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE job = ?1");
    OpenOfJobs = concat!(
        "SELECT ",
        live_columns!(),
        " FROM live WHERE live.job = ?1 ORDER BY live.occurrence DESC LIMIT ?2"
    );
    // The execution that ended last among the latest few: overlapping occurrences may end in any order. Only
    // that one is read completely, because results and errors are large.
    LastFinished = concat!(
        "SELECT ",
        history_columns!(),
        from_history!(),
        "WHERE history.seq = (SELECT seq FROM (SELECT seq, completed_at, occurrence, attempt FROM history \
         WHERE job = ?1 ORDER BY occurrence DESC, attempt DESC LIMIT ?2) \
         ORDER BY completed_at DESC, occurrence DESC, attempt DESC LIMIT 1)"
    );
    HistoryOfJob = concat!(
        "SELECT ",
        history_columns!(),
        from_history!(),
        "WHERE history.job = ?1 AND (history.occurrence, history.attempt) < (?2, ?3) \
         ORDER BY history.occurrence DESC, history.attempt DESC LIMIT ?4"
    );
    // Both sides in one statement, so that an execution that ends meanwhile is in one of them.
    Execution = concat!(
        "SELECT live.job IS NOT NULL, history.job IS NOT NULL, ",
        live_columns!(),
        worker_of_live!(),
        ", ",
        history_columns!(),
        ", workers.name FROM (SELECT 1) AS one \
         LEFT JOIN live ON live.job = ?1 AND live.occurrence = ?2 AND live.attempt = ?3 \
         LEFT JOIN history ON history.job = ?1 AND history.occurrence = ?2 AND history.attempt = ?3 \
         LEFT JOIN workers ON workers.id = history.worker \
         WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = ?1 AND jobs.mark = 4)"
    );
    OpenOfJobBefore = concat!(
        "SELECT ",
        live_columns!(),
        worker_of_live!(),
        "FROM live WHERE live.job = ?1 AND live.occurrence <= ?2 \
         AND (live.occurrence < ?2 OR live.attempt < ?3) ORDER BY live.occurrence DESC LIMIT ?4"
    );
    Skipped = "SELECT first, last, count, reason FROM skipped WHERE job = ?1 ORDER BY last DESC LIMIT ?2";
    DeadLetters = concat!(
        "SELECT ",
        dead_letter_columns!(),
        from_dead_letters!(),
        "WHERE dead_letters.number < ?1 ORDER BY dead_letters.number DESC LIMIT ?2"
    );
    DeadLettersOfJob = concat!(
        "SELECT ",
        dead_letter_columns!(),
        from_dead_letters!(),
        "WHERE dead_letters.job = ?4 AND dead_letters.number < ?1 ORDER BY dead_letters.number DESC LIMIT ?2"
    );
    HistoryBounds = "SELECT given, retained FROM history_bounds WHERE id = 1";
    FinishedAfter = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name, history.seq, jobs.lane FROM history LEFT JOIN workers ON workers.id = history.worker \
         LEFT JOIN jobs ON jobs.id = history.job WHERE history.seq > ?1 ORDER BY history.seq LIMIT ?3"
    );
    RunTimesAfter = "SELECT history.seq, history.status, history.attempt, history.scheduled_time, history.available_at, \
         history.started_at, history.completed_at, jobs.lane, jobs.owner, jobs.name, history.origin FROM history \
         LEFT JOIN jobs ON jobs.id = history.job WHERE history.seq > ?1 AND history.seq < ?2 ORDER BY history.seq LIMIT ?3";
    OpenExecutions = concat!(
        "SELECT ",
        live_columns!(),
        worker_of_live!(),
        "FROM live WHERE live.job = ?1 AND live.occurrence = ?2"
    );
    Running = concat!(
        "SELECT ",
        live_columns!(),
        worker_of_live!(),
        "FROM live WHERE live.state = 2 AND (live.session, live.job, live.occurrence) > (?1, ?2, ?3) \
         ORDER BY live.session, live.job, live.occurrence LIMIT ?4"
    );
    OpenBefore = concat!(
        "SELECT ",
        live_columns!(),
        " FROM live WHERE (live.job, live.occurrence) < (?1, ?2) \
         ORDER BY live.job DESC, live.occurrence DESC LIMIT ?3"
    );
    LanesOfQueue = "SELECT id FROM lanes WHERE queue = ?1 LIMIT ?2";
    HeadsOfLanes = concat!(
        "SELECT ",
        live_columns!(),
        " FROM live WHERE live.lane = ?1 AND live.state = 1 ORDER BY live.rank, live.job, live.occurrence LIMIT ?2"
    );
    // Only the columns that decide whether a row matches: results and errors are large.
    FinishedBefore = "SELECT history.seq, history.completed_at, history.status, history.job, workers.name, jobs.lane, \
         jobs.mark, 0 FROM history LEFT JOIN workers ON workers.id = history.worker \
         LEFT JOIN jobs ON jobs.id = history.job WHERE history.seq < ?1 ORDER BY history.seq DESC LIMIT ?2";
    FinishedAt = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name, history.seq FROM history LEFT JOIN workers ON workers.id = history.worker \
         WHERE history.seq = ?1"
    );
    NamesOfJobs = concat!(
        "SELECT jobs.id, jobs.mark, jobs.name, ",
        settings_columns!(),
        " FROM jobs WHERE jobs.id = ?1"
    );
    KeyHolder = "SELECT job FROM job_keys WHERE owner = ?1 AND kind = ?2 AND key = ?3";
    OwnersOfJobs = "SELECT id, owner, lane FROM jobs WHERE id = ?1";
    // The database of log lines.
    LinesOfExecution = "SELECT number, timestamp, stream, message FROM lines \
         WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3 AND number > ?4 ORDER BY number LIMIT ?5";
    LastLines = "SELECT number, timestamp, stream, message FROM lines \
         WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3 AND number < ?4 ORDER BY number DESC LIMIT ?5";
    AuditPage = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"
    );
    AuditChain = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE number > ?1 ORDER BY number LIMIT ?2"
    );
    AuditEnds = "SELECT name, number, hash FROM audit_chain ORDER BY name";
    Unsealed = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE number IS NULL ORDER BY id LIMIT ?1"
    );
    UnsealedCount = "SELECT count(*) FROM audit WHERE number IS NULL";
}
