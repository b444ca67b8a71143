//! The statements that read.
//!
//! They look up referenced rows one by one (`LATERAL … LIMIT 1`): with a plain join the planner may scan a
//! whole table, once its statistics make it expect many rows.

use crate::codecs::settings_columns;
use crate::layout::{
    audit_columns, dead_letter_columns, document_columns, each_job_count, each_lane_count, history_columns,
    job_columns, live_columns, schedule_columns, secret_columns, token_columns, user_columns,
};
use crate::postgres::tables::read_set::{LIMITERS, STARTED};
use crate::reads::ReadKind;
use crate::reads::rows::{candidate_columns, session_columns};

/// The worker of a row of `history`, by its number.
macro_rules! worker_of_history {
    () => {
        " LEFT JOIN LATERAL (SELECT name FROM workers WHERE workers.id = history.worker LIMIT 1) AS workers ON true "
    };
}

/// The worker that holds a live row.
macro_rules! worker_of_live {
    () => {
        " LEFT JOIN LATERAL (SELECT workers.name FROM sessions JOIN workers ON workers.id = sessions.worker \
         WHERE sessions.id = live.session LIMIT 1) AS workers ON true "
    };
}

/// How candidates were found, and the jobs themselves.
macro_rules! candidates_of {
    ($found:literal) => {
        concat!(
            "SELECT ",
            candidate_columns!(),
            " FROM (",
            $found,
            ") AS found CROSS JOIN LATERAL (SELECT id, lane, mark, priority, owner, name, schedule_type FROM jobs \
             WHERE jobs.id = found.job LIMIT 1) AS jobs ORDER BY found.job DESC"
        )
    };
}

/// All of a dead letter except its error, which may be large: only the error's length, and whether it
/// contains a text.
macro_rules! letters_without_error {
    ($which:literal) => {
        concat!(
            "SELECT ",
            dead_letter_columns!(),
            ", jobs.name, jobs.owner, jobs.lane, letters.error_bytes, letters.is_found FROM (SELECT number, job, occurrence, attempts, epoch, \
             scheduled_time, origin, died_at, NULL::text AS error, noted, input, coalesce(octet_length(error), 0) \
             AS error_bytes, $3::text IS NULL OR coalesce(position($3 IN error) > 0, false) AS is_found \
             FROM dead_letters WHERE ",
            $which,
            " AND number < $1 ORDER BY number DESC LIMIT $2) AS dead_letters \
             CROSS JOIN LATERAL (SELECT dead_letters.error_bytes, dead_letters.is_found) AS letters \
             CROSS JOIN LATERAL (SELECT name, owner, lane FROM jobs WHERE jobs.id = dead_letters.job LIMIT 1) AS jobs \
             ORDER BY dead_letters.number DESC"
        )
    };
}

/// Lines in an order, without those after the one that fills the page. Each row contains the total number
/// of lines.
macro_rules! lines_in_order {
    ($past:literal, $order:literal) => {
        concat!(
            "SELECT number, timestamp, stream, message, looked_at FROM \
             (SELECT *, sum(octet_length(message)) OVER (ORDER BY number ",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before, count(*) OVER () AS looked_at \
             FROM (SELECT * FROM lines WHERE job = $1 AND occurrence = $2 AND attempt = $3 AND number ",
            $past,
            " $4 ORDER BY number ",
            $order,
            " LIMIT $5) AS lines) AS lines WHERE coalesce(bytes_before, 0) <= $6 ORDER BY number ",
            $order
        )
    };
}

pub(super) const BOUNDS: &str = "SELECT given, retained FROM history_bounds WHERE id = 1";
pub(crate) const LAST_PLACE: &str = "SELECT place FROM history WHERE place < $1 ORDER BY place DESC LIMIT 1";

/// The statement of each read.
macro_rules! statements {
    ($($read:ident = $sql:expr;)*) => {
        pub(crate) const fn statement(read: ReadKind) -> &'static str {
            match read { $(ReadKind::$read => $sql,)* }
        }
    };
}

statements! {
    // A partition that is dropped meanwhile has size zero.
    Sizes = "SELECT pg_database_size(current_database()), 0::bigint, \
         (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_partition_tree('lines'))";
    // Both sides in one statement, so that an execution that ends meanwhile is in one of them.
    Execution = concat!(
        "SELECT live.job IS NOT NULL, history.job IS NOT NULL, ",
        live_columns!(),
        ", holder.name, ",
        history_columns!(),
        ", workers.name FROM (VALUES ($1::uuid, $2::bigint, $3::integer)) AS wanted (job, occurrence, attempt) \
         LEFT JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job AND live.occurrence = wanted.occurrence \
         AND live.attempt = wanted.attempt LIMIT 1) AS live ON true \
         LEFT JOIN LATERAL (SELECT workers.name FROM sessions JOIN workers ON workers.id = sessions.worker \
         WHERE sessions.id = live.session LIMIT 1) AS holder ON true \
         LEFT JOIN LATERAL (SELECT * FROM history WHERE history.job = wanted.job \
         AND history.occurrence = wanted.occurrence AND history.attempt = wanted.attempt LIMIT 1) AS history ON true",
        worker_of_history!(),
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = wanted.job AND jobs.mark = 4)"
    );
    // The database's clock, in microseconds.
    Clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    StoredNumber = "SELECT at FROM probe WHERE id = $1";
    Lanes = "SELECT id, queue, job_type FROM lanes WHERE id = ANY ($1)";
    DueSchedules = "SELECT due.due_at, due.lane, due.job, due.version \
         FROM unnest($1::smallint[]) AS wanted (segment) CROSS JOIN LATERAL \
         (SELECT due_at, lane, job, version FROM schedules WHERE schedules.segment = wanted.segment AND due_at <= $2 \
         ORDER BY due_at LIMIT $3) AS due";
    DueLive = "SELECT due.look_at, due.lane, due.job, due.occurrence, due.attempt \
         FROM unnest($1::smallint[]) AS wanted (segment) CROSS JOIN LATERAL \
         (SELECT look_at, lane, job, occurrence, attempt FROM live WHERE live.segment = wanted.segment \
         AND look_at IS NOT NULL AND look_at <= $2 ORDER BY look_at LIMIT $3) AS due";
    Sessions = concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions LEFT JOIN session_conditions ON session_conditions.session = sessions.id \
         CROSS JOIN LATERAL (SELECT name FROM workers WHERE workers.id = sessions.worker LIMIT 1) AS workers \
         WHERE NOT sessions.lost ORDER BY sessions.id"
    );
    TokenOfSession = "SELECT token FROM sessions WHERE id = $1";
    // Session by session, so that a backlog is not scanned for the few that run. Every lease belongs to an
    // existing session.
    Holdings = "SELECT sessions.id, held.count FROM sessions CROSS JOIN LATERAL \
         (SELECT count(*) AS count FROM live WHERE live.session = sessions.id AND live.state = 2) AS held \
         WHERE held.count > 0 ORDER BY sessions.id";
    // Names are ordered by their bytes, as everywhere, not by the database's collation.
    Queues = "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue COLLATE \"C\"";
    // The counters of a lane are split into several rows, one for each writing connection. One statement,
    // because the heads of the queues must match the counters. [`crate::lists::heads_looked_at`] determines
    // how much of a head is read.
    Depths = concat!(
        "SELECT tallies.lane, ",
        each_lane_count!(", ", "tallies.", ""),
        ", CASE WHEN tallies.queued > 0 THEN (SELECT min(head.available_at) FROM (SELECT available_at FROM live \
         WHERE live.lane = tallies.lane AND state = 1 ORDER BY rank, job, occurrence LIMIT greatest(1, least($2::bigint, $1::bigint / greatest(tallies.busy, 1)))) AS head) END \
         FROM (SELECT lane, ",
        each_lane_count!(", ", "least(sum(", "), 9223372036854775807)::bigint AS ", ""),
        ", count(CASE WHEN sum(queued) > 0 THEN 1 END) OVER () AS busy \
         FROM lane_tallies GROUP BY lane) AS tallies WHERE (",
        each_lane_count!(", ", "tallies.", ""),
        ") <> (",
        each_lane_count!(", ", "0"),
        ") ORDER BY tallies.lane"
    );
    JobCounts =
        concat!("SELECT ", each_job_count!(", ", "least(coalesce(sum(", "), 0), 9223372036854775807)::bigint"), " FROM job_tally");
    // One statement, so that its position and the executions before it are from the same snapshot.
    Ahead = "SELECT (SELECT count(*) FROM (SELECT 1 FROM live AS earlier \
         WHERE earlier.lane = live.lane AND earlier.state = 1 \
         AND (earlier.rank, earlier.job, earlier.occurrence) < (live.rank, live.job, live.occurrence) LIMIT $3) AS ahead) \
         FROM live WHERE live.job = $1 AND live.occurrence = $2 AND live.state = 1";
    Token = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id = $1");
    Tokens = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id > $1 ORDER BY id LIMIT $2");
    User = concat!("SELECT ", user_columns!(), " FROM users WHERE id = $1");
    UserByEmail = concat!("SELECT ", user_columns!(), " FROM users WHERE email = $1");
    Users = concat!("SELECT ", user_columns!(), " FROM users WHERE id > $1 ORDER BY id LIMIT $2");
    Secret = concat!("SELECT ", secret_columns!(), " FROM secrets WHERE id = $1");
    Secrets = concat!("SELECT ", secret_columns!(), " FROM secrets WHERE id > $1 ORDER BY id LIMIT $2");
    Document = concat!("SELECT ", document_columns!(), " FROM documents WHERE id = $1");
    Documents = concat!("SELECT ", document_columns!(), " FROM documents WHERE id > $1 ORDER BY id LIMIT $2");
    WaitingLines = "SELECT limiter, (SELECT lane FROM live WHERE live.line = limiter_tallies.limiter LIMIT 1) \
         FROM limiter_tallies WHERE waiting > 0 AND limiter > $1 ORDER BY limiter LIMIT $2";
    Started = STARTED;
    Limiters = LIMITERS;
    NotesOfJob = "SELECT notes.occurrence, notes.attempt, notes.percent, notes.message, \
         notes.noted_at, (SELECT octet_length(document) FROM checkpoints \
         WHERE checkpoints.job = notes.job AND checkpoints.occurrence = notes.occurrence) \
         FROM notes WHERE notes.job = $1 AND notes.occurrence <= $2 ORDER BY notes.occurrence DESC LIMIT $3";
    Checkpoint = "SELECT document FROM checkpoints WHERE job = $1 AND occurrence = $2";
    LatestJobs = concat!("SELECT ", candidate_columns!(), " FROM jobs WHERE id < $1 ORDER BY id DESC LIMIT $2");
    MarkedJobs = concat!(
        "SELECT ",
        candidate_columns!(),
        " FROM jobs WHERE mark = $3 AND mark <> 0 AND id < $1 ORDER BY id DESC LIMIT $2"
    );
    TaggedJobs = candidates_of!("SELECT job FROM job_tags WHERE tag = $3 AND job < $1 ORDER BY job DESC LIMIT $2");
    // Jobs with open or future occurrences.
    ActiveJobs = candidates_of!(
        "SELECT job FROM ((SELECT DISTINCT job FROM live WHERE job < $1 ORDER BY job DESC LIMIT $2) \
         UNION (SELECT job FROM schedules WHERE job < $1 ORDER BY job DESC LIMIT $2)) AS either \
         ORDER BY job DESC LIMIT $2"
    );
    ScheduledJobs = candidates_of!("SELECT job FROM schedules WHERE job < $1 ORDER BY job DESC LIMIT $2");
    OneJob = concat!("SELECT ", candidate_columns!(), " FROM jobs WHERE id = $1");
    TagsOfJobs = "SELECT job, tag FROM job_tags WHERE job = ANY ($1)";
    // Whether these jobs have open or future occurrences.
    StandingOfJobs = "SELECT wanted.job, coalesce(open.job, schedule.job) IS NOT NULL \
         FROM unnest($1::uuid[]) AS wanted (job) \
         LEFT JOIN LATERAL (SELECT job FROM live WHERE live.job = wanted.job LIMIT 1) AS open ON true \
         LEFT JOIN LATERAL (SELECT job FROM schedules WHERE schedules.job = wanted.job LIMIT 1) AS schedule ON true";
    Jobs = concat!("SELECT ", job_columns!(), " FROM jobs WHERE jobs.id = ANY ($1)");
    Schedules = concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE schedules.job = ANY ($1)");
    OpenOfJobs = concat!(
        "SELECT ",
        live_columns!(),
        " FROM unnest($1::uuid[]) AS wanted (job) CROSS JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job \
         ORDER BY live.occurrence DESC LIMIT $2) AS live"
    );
    // The execution of each job that ended last among the latest few: overlapping occurrences may end in any
    // order.
    LastFinished = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name FROM unnest($1::uuid[]) AS wanted (job) CROSS JOIN LATERAL (SELECT * FROM (SELECT * FROM history \
         WHERE history.job = wanted.job ORDER BY occurrence DESC, attempt DESC LIMIT $2) AS latest \
         ORDER BY completed_at DESC, occurrence DESC, attempt DESC LIMIT 1) AS history",
        worker_of_history!()
    );
    // Latest first; omits rows after the one that fills the page.
    HistoryOfJob = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name, history.looked_at FROM (SELECT *, sum(bytes) OVER (ORDER BY occurrence DESC, attempt DESC \
         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before, count(*) OVER () AS looked_at FROM \
         (SELECT *, coalesce(octet_length(error), 0) + coalesce(octet_length(result), 0) AS bytes FROM history \
         WHERE job = $1 AND (occurrence, attempt) < ($2, $3) ORDER BY occurrence DESC, attempt DESC LIMIT $4) \
         AS history) AS history",
        worker_of_history!(),
        "WHERE coalesce(history.bytes_before, 0) <= $5 ORDER BY history.occurrence DESC, history.attempt DESC"
    );
    OpenOfJobBefore = concat!(
        "SELECT ",
        live_columns!(),
        ", holder.name FROM (SELECT * FROM live WHERE job = $1 AND occurrence <= $2 \
         AND (occurrence < $2 OR attempt < $3) ORDER BY occurrence DESC LIMIT $4) AS live \
         LEFT JOIN LATERAL (SELECT workers.name FROM sessions JOIN workers ON workers.id = sessions.worker \
         WHERE sessions.id = live.session LIMIT 1) AS holder ON true ORDER BY live.occurrence DESC"
    );
    Skipped = "SELECT first, last, count, reason FROM skipped WHERE job = $1 ORDER BY last DESC LIMIT $2";
    DeadLetters = letters_without_error!("true");
    DeadLettersOfJob = letters_without_error!("job = $4");
    // The errors of the dead letters that are shown.
    ErrorsOfLetters = "SELECT number, error FROM dead_letters WHERE number = ANY ($1) AND error IS NOT NULL";
    HistoryBounds = BOUNDS;
    // Rows ordered by position. The statement omits rows after the one that fills the page, so that large
    // results are not sent needlessly. Each row contains the total number of rows.
    FinishedAfter = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name, history.place, jobs.lane, history.looked_at FROM \
         (SELECT *, sum(bytes) OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before, \
         count(*) OVER () AS looked_at FROM \
         (SELECT *, coalesce(octet_length(error), 0) + coalesce(octet_length(result), 0) AS bytes FROM history \
         WHERE place > $1 AND place < $2 ORDER BY place LIMIT $3) AS history) AS history",
        worker_of_history!(),
        "LEFT JOIN LATERAL (SELECT lane FROM jobs WHERE jobs.id = history.job LIMIT 1) AS jobs ON true \
         WHERE coalesce(history.bytes_before, 0) <= $4 ORDER BY history.place"
    );
    RunTimesAfter = "SELECT history.place, history.status, history.attempt, history.scheduled_time, history.available_at, \
         history.started_at, history.completed_at, jobs.lane, jobs.owner, jobs.name, history.origin FROM \
         (SELECT * FROM history WHERE place > $1 AND place < $2 ORDER BY place LIMIT $3) AS history \
         LEFT JOIN LATERAL (SELECT lane, owner, name FROM jobs WHERE jobs.id = history.job LIMIT 1) AS jobs ON true \
         ORDER BY history.place";
    OpenExecutions = concat!(
        "SELECT ",
        live_columns!(),
        ", workers.name FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS wanted (job, occurrence, number) \
         CROSS JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job AND live.occurrence = wanted.occurrence \
         LIMIT 1) AS live",
        worker_of_live!(),
        "ORDER BY wanted.number"
    );
    Running = concat!(
        "SELECT ",
        live_columns!(),
        ", workers.name FROM (SELECT * FROM live WHERE state = 2 AND (session, job, occurrence) > ($1, $2, $3) \
         ORDER BY session, job, occurrence LIMIT $4) AS live",
        worker_of_live!(),
        "ORDER BY live.session, live.job, live.occurrence"
    );
    OpenBefore = concat!(
        "SELECT ",
        live_columns!(),
        " FROM live WHERE (live.job, live.occurrence) < ($1, $2) \
         ORDER BY live.job DESC, live.occurrence DESC LIMIT $3"
    );
    // Only the columns that decide whether a row matches, and the lengths of its result and error, which are
    // large.
    LanesOfQueue = "SELECT id FROM lanes WHERE queue = $1 LIMIT $2";
    HeadsOfLanes = concat!(
        "SELECT ",
        live_columns!(),
        " FROM unnest($1::bigint[]) AS wanted (lane) CROSS JOIN LATERAL (SELECT * FROM live \
         WHERE live.lane = wanted.lane AND live.state = 1 ORDER BY live.rank, live.job, live.occurrence LIMIT $2) AS live"
    );
    FinishedBefore = concat!(
        "SELECT history.place, history.completed_at, history.status, history.job, workers.name, jobs.lane, jobs.mark, \
         history.bytes FROM (SELECT place, completed_at, status, worker, job, \
         coalesce(octet_length(error), 0) + coalesce(octet_length(result), 0) AS bytes FROM history \
         WHERE place < $1 ORDER BY place DESC LIMIT $2) AS history",
        worker_of_history!(),
        "LEFT JOIN LATERAL (SELECT lane, mark FROM jobs WHERE jobs.id = history.job LIMIT 1) AS jobs ON true \
         ORDER BY history.place DESC"
    );
    // The time of its end determines the partition of a row.
    FinishedAt = concat!(
        "SELECT ",
        history_columns!(),
        ", workers.name, history.place FROM unnest($1::bigint[], $2::bigint[]) AS wanted (place, completed_at) CROSS JOIN LATERAL \
         (SELECT * FROM history WHERE history.completed_at = wanted.completed_at AND history.place = wanted.place \
         LIMIT 1) AS history",
        worker_of_history!()
    );
    NamesOfJobs = concat!(
        "SELECT jobs.id, jobs.mark, jobs.name, ",
        settings_columns!(),
        " FROM jobs WHERE jobs.id = ANY ($1)"
    );
    KeyHolder = "SELECT job FROM job_keys WHERE owner = $1 AND kind = $2 AND key = $3";
    OwnersOfJobs = "SELECT id, owner, lane FROM jobs WHERE id = ANY ($1)";
    LinesOfExecution = lines_in_order!(">", "ASC");
    LastLines = lines_in_order!("<", "DESC");
    AuditPage = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT $3"
    );
    AuditChain = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE number > $1 ORDER BY number LIMIT $2"
    );
    AuditEnds = "SELECT name, number, hash FROM audit_chain ORDER BY name";
    Unsealed = concat!(
        "SELECT ",
        audit_columns!(),
        " FROM audit WHERE number IS NULL ORDER BY id LIMIT $1"
    );
    UnsealedCount = "SELECT count(*) FROM audit WHERE number IS NULL";
}
