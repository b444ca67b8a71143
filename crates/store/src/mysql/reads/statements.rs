//! The statements that read. Many keys are sent as one JSON document. If only the first few rows of each key
//! are needed, they become branches of a `UNION ALL`: MariaDB has no `LATERAL`.

use crate::codecs::settings_columns;
use crate::layout::{
    each_job_count, each_lane_count, mysql_audit_columns as audit_columns,
    mysql_dead_letter_columns as dead_letter_columns, mysql_document_columns as document_columns,
    mysql_history_columns as history_columns, mysql_job_columns as job_columns,
    mysql_live_columns as live_columns, mysql_schedule_columns as schedule_columns,
    mysql_secret_columns as secret_columns, mysql_token_columns as token_columns,
    mysql_user_columns as user_columns,
};
use crate::mysql::names::LANES_BY_NUMBER;
use crate::mysql::tables::{LIMITERS, STARTED};
use crate::reads::ReadKind;
use crate::reads::rows::{candidate_columns, session_columns};
use mysql_async::Value;
use punctual_core::ports::OPEN_IN_VIEW_MAX;

pub(super) const QUEUED_PLACE: &str =
    "SELECT queued_lane, claim_rank FROM live WHERE job = ? AND occurrence = ? AND queued_lane > 0";
/// The comparison of triples is spelled out: neither server uses an index for `(a, b, c) < (?, ?, ?)`.
pub(crate) const AHEAD: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM live FORCE INDEX (live_claim) \
     WHERE queued_lane = ? AND (claim_rank < ? OR (claim_rank = ? AND (job < ? OR (job = ? AND occurrence < ?)))) \
     LIMIT ?) AS ahead";
pub(crate) const JOBS_BY_ID: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)"
);
pub(crate) const ACTIVE_LIVE: &str = "SELECT live.job FROM live FORCE INDEX (PRIMARY) WHERE live.job < ? \
     GROUP BY live.job ORDER BY live.job DESC LIMIT ?";
pub(crate) const ACTIVE_SCHEDULES: &str = "SELECT schedules.job FROM schedules FORCE INDEX (PRIMARY) WHERE schedules.job < ? \
     ORDER BY schedules.job DESC LIMIT ?";
pub(crate) const HEAD_OF_LANE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (live_claim) WHERE live.queued_lane = ? \
     ORDER BY live.claim_rank, live.job, live.occurrence LIMIT ?"
);
/// A branch for each job: a window function would read all open occurrences of a job to return a few rows.
pub(crate) const OPEN_OF_JOB: &str = concat!(
    "(SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (PRIMARY) WHERE live.job = ? ORDER BY live.occurrence DESC LIMIT 10)"
);
const _: () = assert!(OPEN_IN_VIEW_MAX == 10, "the limit of OPEN_OF_JOB");
/// Finished executions that are searched for the last to end: overlapping occurrences may end in any order.
/// Only the columns that decide it, because results and errors are large.
pub(crate) const LATEST_OF_JOB: &str = "(SELECT history.job, history.occurrence, history.attempt, history.completed_at, \
     history.place FROM history FORCE INDEX (history_job) WHERE history.job = ? \
     ORDER BY history.occurrence DESC, history.attempt DESC LIMIT 8)";
/// By position and time: the time determines the partition.
pub(crate) const FINISHED_AT: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.place FROM JSON_TABLE(?, '$[*]' COLUMNS (place BIGINT PATH '$[0]', ended BIGINT PATH '$[1]')) AS wanted \
     STRAIGHT_JOIN history FORCE INDEX (PRIMARY) ON history.place = wanted.place AND history.completed_at = wanted.ended \
     LEFT JOIN workers ON workers.id = history.worker"
);
/// How long a row of history after a missing number is held back from followers: longer than transactions
/// take.
macro_rules! is_settled {
    () => {
        "history.appended_at <= UTC_TIMESTAMP(6) - INTERVAL 2 SECOND"
    };
}

/// The latest rows, for the end of history.
pub(crate) const RECENT: &str = concat!(
    "SELECT history.place, ",
    is_settled!(),
    " FROM history FORCE INDEX (PRIMARY) WHERE history.place < ? ORDER BY history.place DESC LIMIT ?"
);
pub(super) const BOUNDS: &str = "SELECT given, retained FROM history_bounds WHERE id = 1";
pub(crate) const RUNNING_FIRST: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (live_session) WHERE live.session IS NOT NULL \
     ORDER BY live.session, live.job, live.occurrence LIMIT ?"
);
pub(crate) const WORKERS_OF_SESSIONS: &str = "SELECT sessions.id, workers.name \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (session BIGINT PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN sessions ON sessions.id = wanted.session STRAIGHT_JOIN workers ON workers.id = sessions.worker";

/// Each segment is a separate branch with its own limit. The segments of a process rarely change, and so
/// does the statement.
pub(crate) fn due_schedules(segments: &[i64]) -> String {
    each(segments, |segment| {
        format!(
            "(SELECT due_at, lane, job, version FROM schedules FORCE INDEX (schedules_due) \
             WHERE segment = {segment} AND due_at <= ? ORDER BY due_at LIMIT ?)"
        )
    })
}

pub(crate) fn due_live(segments: &[i64]) -> String {
    each(segments, |segment| {
        format!(
            "(SELECT look_at, lane, job, occurrence, attempt FROM live FORCE INDEX (live_due) \
             WHERE segment = {segment} AND look_at <= ? ORDER BY look_at LIMIT ?)"
        )
    })
}

fn each(numbers: &[i64], branch: impl Fn(&i64) -> String) -> String {
    numbers.iter().map(branch).collect::<Vec<_>>().join(" UNION ALL ")
}

/// Each lane is a separate branch with its own limit. Lane numbers are written into the text: they are our
/// own.
pub(crate) fn heads(lanes: &[i64], looked_at: usize) -> String {
    each(lanes, |lane| {
        format!(
            "(SELECT {lane} AS lane, MIN(head.available_at) AS oldest FROM (SELECT available_at FROM live \
             FORCE INDEX (live_claim) WHERE queued_lane = {lane} \
             ORDER BY queued_lane, claim_rank, job, occurrence LIMIT {looked_at}) AS head)"
        )
    })
}

/// Keys of a `UNION ALL`. Few sizes, so that each statement is prepared a few times and not once for every
/// number.
const SIZES_OF_UNIONS: [usize; 3] = [1, 10, VIEWS_AT_ONCE];
/// Jobs that are looked up together: as many as the largest union.
pub(super) const VIEWS_AT_ONCE: usize = 50;
/// A key that no job has, to fill up a size.
const NO_JOB: [u8; 16] = [0; 16];

/// This branch for each of these keys, which must be no more than [`VIEWS_AT_ONCE`]; with the parameters if
/// the key is the only one.
pub(crate) fn branches(branch: &str, mut keys: Vec<Value>) -> (String, Vec<Value>) {
    debug_assert!(keys.len() <= VIEWS_AT_ONCE, "{} keys", keys.len());
    let size = SIZES_OF_UNIONS.into_iter().find(|size| *size >= keys.len()).unwrap_or(keys.len());
    keys.resize(size, Value::Bytes(NO_JOB.to_vec()));
    (vec![branch; size].join(" UNION ALL "), keys)
}

/// The statement of each read, and which of its values are the parameters.
macro_rules! statements {
    ($($read:ident [$($place:literal),*] = $sql:expr;)*) => {
        pub(crate) const fn statement(read: ReadKind) -> (&'static str, &'static [usize]) {
            match read {
                $(ReadKind::$read => ($sql, &[$($place),*]),)*
                ReadKind::StandingOfJobs | ReadKind::ErrorsOfLetters => panic!("not part of any verb"),
                ReadKind::DueSchedules
                | ReadKind::DueLive
                | ReadKind::Ahead
                | ReadKind::HeadsOfLanes
                | ReadKind::ActiveJobs
                | ReadKind::OneJob
                | ReadKind::OpenOfJobs
                | ReadKind::LastFinished => panic!("several statements, or a text that depends on the values"),
            }
        }
    };
}

statements! {
    // The tables of this database. The result is as old as the server's statistics, which is accurate enough.
    Sizes [] = "SELECT CAST(COALESCE(SUM(IF(table_name = 'log_lines', 0, data_length + index_length)), 0) AS SIGNED), \
         CAST(COALESCE(SUM(data_free), 0) AS SIGNED), \
         CAST(COALESCE(SUM(IF(table_name = 'log_lines', data_length + index_length, 0)), 0) AS SIGNED) \
         FROM information_schema.tables WHERE table_schema = DATABASE()";
    // Both sides in one statement, so that an execution that ends meanwhile is in one of them.
    Execution [0, 1, 2, 0, 1, 2, 0] = concat!(
        "SELECT live.job IS NOT NULL, history.job IS NOT NULL, ",
        live_columns!(),
        ", holders.name, ",
        history_columns!(),
        ", workers.name FROM (SELECT 1) AS one \
         LEFT JOIN live FORCE INDEX (PRIMARY) ON live.job = ? AND live.occurrence = ? AND live.attempt = ? \
         LEFT JOIN sessions ON sessions.id = live.session LEFT JOIN workers AS holders ON holders.id = sessions.worker \
         LEFT JOIN history FORCE INDEX (history_job) ON history.job = ? AND history.occurrence = ? AND history.attempt = ? \
         LEFT JOIN workers ON workers.id = history.worker \
         WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = ? AND jobs.mark = 4)"
    );
    // The database's clock, in microseconds. It is independent of the session's time zone and of the year
    // 2038.
    Clock [] = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    StoredNumber [0] = "SELECT at FROM probe WHERE id = ?";
    Lanes [] = LANES_BY_NUMBER;
    Sessions [] = concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions JOIN workers ON workers.id = sessions.worker \
         LEFT JOIN session_conditions ON session_conditions.session = sessions.id WHERE sessions.lost = 0 ORDER BY sessions.id"
    );
    TokenOfSession [0] = "SELECT token FROM sessions WHERE id = ?";
    Holdings [] = "SELECT session, COUNT(*) FROM live FORCE INDEX (live_session) WHERE session IS NOT NULL \
         GROUP BY session ORDER BY session";
    Queues [] = "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue";
    // Each writing connection counts in its own rows.
    Depths [] = concat!(
        "SELECT lane, ",
        each_lane_count!(", ", "CAST(SUM(", ") AS SIGNED)"),
        " FROM lane_tallies GROUP BY lane ORDER BY lane"
    );
    JobCounts [] =
        concat!("SELECT ", each_job_count!(", ", "CAST(COALESCE(SUM(", "), 0) AS SIGNED)"), " FROM job_tally");
    Token [0] = concat!("SELECT ", token_columns!(), " FROM tokens WHERE tokens.id = ?");
    Tokens [0, 1] = concat!(
        "SELECT ",
        token_columns!(),
        " FROM tokens FORCE INDEX (PRIMARY) WHERE tokens.id > ? ORDER BY tokens.id LIMIT ?"
    );
    User [0] = concat!("SELECT ", user_columns!(), " FROM users WHERE users.id = ?");
    UserByEmail [0] = concat!("SELECT ", user_columns!(), " FROM users WHERE users.email = ?");
    Users [0, 1] = concat!(
        "SELECT ",
        user_columns!(),
        " FROM users FORCE INDEX (PRIMARY) WHERE users.id > ? ORDER BY users.id LIMIT ?"
    );
    Secret [0] = concat!("SELECT ", secret_columns!(), " FROM secrets WHERE secrets.id = ?");
    Secrets [0, 1] = concat!(
        "SELECT ",
        secret_columns!(),
        " FROM secrets FORCE INDEX (PRIMARY) WHERE secrets.id > ? ORDER BY secrets.id LIMIT ?"
    );
    Document [0] = concat!("SELECT ", document_columns!(), " FROM documents WHERE documents.id = ?");
    Documents [0, 1] = concat!(
        "SELECT ",
        document_columns!(),
        " FROM documents FORCE INDEX (PRIMARY) WHERE documents.id > ? ORDER BY documents.id LIMIT ?"
    );
    WaitingLines [0, 1] = "SELECT limiter, (SELECT lane FROM live FORCE INDEX (live_claim) \
         WHERE live.queued_lane = limiter_tallies.limiter LIMIT 1) \
         FROM limiter_tallies WHERE waiting > 0 AND limiter > ? ORDER BY limiter LIMIT ?";
    Started [] = STARTED;
    Limiters [] = LIMITERS;
    NotesOfJob [0, 1, 2] = "SELECT notes.occurrence, notes.attempt, notes.percent, notes.message, \
         notes.noted_at, (SELECT LENGTH(checkpoints.document) FROM checkpoints \
         WHERE checkpoints.job = notes.job AND checkpoints.occurrence = notes.occurrence) \
         FROM notes FORCE INDEX (PRIMARY) WHERE notes.job = ? AND notes.occurrence <= ? \
         ORDER BY notes.occurrence DESC LIMIT ?";
    Checkpoint [0, 1] = "SELECT checkpoints.document FROM checkpoints WHERE checkpoints.job = ? AND checkpoints.occurrence = ?";
    LatestJobs [0, 1] = concat!(
        "SELECT ",
        candidate_columns!(),
        " FROM jobs FORCE INDEX (PRIMARY) WHERE jobs.id < ? ORDER BY jobs.id DESC LIMIT ?"
    );
    MarkedJobs [2, 0, 1] = concat!(
        "SELECT ",
        candidate_columns!(),
        " FROM jobs FORCE INDEX (jobs_marked) WHERE jobs.mark = ? AND jobs.id < ? ORDER BY jobs.id DESC LIMIT ?"
    );
    TaggedJobs [2, 0, 1] = concat!(
        "SELECT ",
        candidate_columns!(),
        " FROM job_tags FORCE INDEX (PRIMARY) STRAIGHT_JOIN jobs ON jobs.id = job_tags.job \
         WHERE job_tags.tag = ? AND job_tags.job < ? ORDER BY job_tags.job DESC LIMIT ?"
    );
    ScheduledJobs [0, 1] = concat!(
        "SELECT ",
        candidate_columns!(),
        " FROM schedules FORCE INDEX (PRIMARY) STRAIGHT_JOIN jobs ON jobs.id = schedules.job \
         WHERE schedules.job < ? ORDER BY schedules.job DESC LIMIT ?"
    );
    TagsOfJobs [] = "SELECT job_tags.job, job_tags.tag \
         FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
         STRAIGHT_JOIN job_tags FORCE INDEX (job_tags_job) ON job_tags.job = UNHEX(wanted.job)";
    Jobs [] = concat!(
        "SELECT ",
        job_columns!(),
        " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
         STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)"
    );
    Schedules [] = concat!(
        "SELECT ",
        schedule_columns!(),
        " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
         STRAIGHT_JOIN schedules ON schedules.job = UNHEX(wanted.job)"
    );
    FinishedAt [] = FINISHED_AT;
    // The comparison of pairs is spelled out: neither server uses an index for `(a, b) < (?, ?)`.
    HistoryOfJob [0, 1, 1, 2, 3] = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name FROM history FORCE INDEX (history_job) LEFT JOIN workers ON workers.id = history.worker \
         WHERE history.job = ? AND (history.occurrence < ? OR (history.occurrence = ? AND history.attempt < ?)) \
         ORDER BY history.occurrence DESC, history.attempt DESC LIMIT ?"
    );
    OpenOfJobBefore [0, 1, 1, 2, 3] = concat!(
        "SELECT ",
        live_columns!(),
        ", workers.name FROM live FORCE INDEX (PRIMARY) LEFT JOIN sessions ON sessions.id = live.session \
         LEFT JOIN workers ON workers.id = sessions.worker WHERE live.job = ? AND live.occurrence <= ? \
         AND (live.occurrence < ? OR live.attempt < ?) ORDER BY live.occurrence DESC LIMIT ?"
    );
    Skipped [0, 1] = "SELECT skipped.first, skipped.last, skipped.count, skipped.reason \
         FROM skipped FORCE INDEX (skipped_job) WHERE skipped.job = ? ORDER BY skipped.last DESC LIMIT ?";
    DeadLetters [0, 1] = concat!(
        "SELECT ",
        dead_letter_columns!(),
        ", jobs.name, jobs.owner, jobs.lane FROM dead_letters FORCE INDEX (PRIMARY) STRAIGHT_JOIN jobs ON jobs.id = dead_letters.job \
         WHERE dead_letters.number < ? ORDER BY dead_letters.number DESC LIMIT ?"
    );
    DeadLettersOfJob [3, 0, 1] = concat!(
        "SELECT ",
        dead_letter_columns!(),
        ", jobs.name, jobs.owner, jobs.lane FROM dead_letters FORCE INDEX (dead_letters_job) STRAIGHT_JOIN jobs ON jobs.id = dead_letters.job \
         WHERE dead_letters.job = ? AND dead_letters.number < ? ORDER BY dead_letters.number DESC LIMIT ?"
    );
    HistoryBounds [] = BOUNDS;
    FinishedAfter [0, 2] = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name, history.place, jobs.lane, ",
        is_settled!(),
        " FROM history FORCE INDEX (PRIMARY) LEFT JOIN workers ON workers.id = history.worker \
         LEFT JOIN jobs ON jobs.id = history.job WHERE history.place > ? ORDER BY history.place LIMIT ?"
    );
    RunTimesAfter [0, 2] = concat!(
        "SELECT history.place, history.status, history.attempt, history.scheduled_time, history.available_at, \
         history.started_at, history.completed_at, jobs.lane, jobs.owner, jobs.name, history.origin, ",
        is_settled!(),
        " FROM history FORCE INDEX (PRIMARY) LEFT JOIN jobs ON jobs.id = history.job WHERE history.place > ? \
         ORDER BY history.place LIMIT ?"
    );
    OpenExecutions [] = concat!(
        "SELECT ",
        live_columns!(),
        " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]', number BIGINT PATH '$[1]')) AS wanted \
         STRAIGHT_JOIN live ON live.job = UNHEX(wanted.job) AND live.occurrence = wanted.number"
    );
    // Only running executions have a session. The comparison of triples is spelled out: neither server uses an
    // index for `(a, b, c) > (?, ?, ?)`.
    Running [0, 0, 1, 1, 2, 3] = concat!(
        "SELECT ",
        live_columns!(),
        " FROM live FORCE INDEX (live_session) WHERE live.session > ? \
         OR (live.session = ? AND (live.job > ? OR (live.job = ? AND live.occurrence > ?))) \
         ORDER BY live.session, live.job, live.occurrence LIMIT ?"
    );
    // The comparison of pairs is spelled out: neither server uses an index for `(a, b) < (?, ?)`.
    OpenBefore [0, 0, 1, 2] = concat!(
        "SELECT ",
        live_columns!(),
        " FROM live FORCE INDEX (PRIMARY) WHERE live.job < ? OR (live.job = ? AND live.occurrence < ?) \
         ORDER BY live.job DESC, live.occurrence DESC LIMIT ?"
    );
    // Only the columns that decide whether a row matches: results and errors are large.
    LanesOfQueue [0, 1] = "SELECT id FROM lanes FORCE INDEX (lanes_name) WHERE queue = ? LIMIT ?";
    FinishedBefore [0, 1] = "SELECT history.place, history.completed_at, history.status, history.job, \
         workers.name, jobs.lane, jobs.mark, 0 FROM history FORCE INDEX (PRIMARY) LEFT JOIN workers ON workers.id = history.worker \
         LEFT JOIN jobs ON jobs.id = history.job WHERE history.place < ? ORDER BY history.place DESC LIMIT ?";
    NamesOfJobs [] = concat!(
        "SELECT jobs.id, jobs.mark, jobs.name, ",
        settings_columns!(),
        " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
         STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)"
    );
    KeyHolder [0, 1, 2] = "SELECT job FROM job_keys WHERE owner = ? AND kind = ? AND `key` = ?";
    OwnersOfJobs [] = "SELECT jobs.id, jobs.owner, jobs.lane \
         FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
         STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)";
    LinesOfExecution [0, 1, 2, 3, 4] = "SELECT log_lines.number, log_lines.timestamp, log_lines.stream, log_lines.message \
         FROM log_lines FORCE INDEX (PRIMARY) WHERE log_lines.job = ? AND log_lines.occurrence = ? AND log_lines.attempt = ? \
         AND log_lines.number > ? ORDER BY log_lines.number LIMIT ?";
    LastLines [0, 1, 2, 3, 4] = "SELECT log_lines.number, log_lines.timestamp, log_lines.stream, log_lines.message \
         FROM log_lines FORCE INDEX (PRIMARY) WHERE log_lines.job = ? AND log_lines.occurrence = ? AND log_lines.attempt = ? \
         AND log_lines.number < ? ORDER BY log_lines.number DESC LIMIT ?";
    AuditPage [0, 1, 2] = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit FORCE INDEX (PRIMARY) WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?"
    );
    AuditChain [0, 1] = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit FORCE INDEX (audit_number) WHERE number > ? ORDER BY number LIMIT ?"
    );
    AuditEnds [] = "SELECT name, number, hash FROM audit_chain ORDER BY name";
    Unsealed [0] = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit FORCE INDEX (audit_number) WHERE number IS NULL ORDER BY id LIMIT ?"
    );
    UnsealedCount [] = "SELECT COUNT(*) FROM audit FORCE INDEX (audit_number) WHERE number IS NULL";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_few_sizes() {
        for (keys, size) in [(1, 1), (2, 10), (10, 10), (11, 50), (50, 50)] {
            let (sql, values) = branches("(?)", vec![Value::Int(7); keys]);
            assert_eq!((sql.matches('?').count(), values.len()), (size, size));
        }
    }
}
