//! The read set of a transaction as statements: first those that lock, in the order of the fields of
//! [`ReadSet`], then those that only read and must see the state while the locks are held.
//!
//! Rows are sorted before they are locked. Where possible, one statement locks all rows of a table that a
//! round needs, because two sorted lists one after the other are not one order.

use crate::codecs::{fact_columns, limit};
use crate::layout::{dead_letter_columns, each_limiter_count, job_columns, live_columns, schedule_columns};
use crate::postgres::claim_cursors::{ClaimCursors, ClaimScan};
use crate::postgres::rows::ListColumn;
use crate::postgres::wire::{Parameter, StatementCall, column, value};
use crate::row_list::{List, ids, numbers, occurrences};
use crate::server::asks::{Ask, RowKind, jobs, unlocked};
use crate::unit_of_work::{ReadSet, RequestedClaims};
use punctual_core::ids::JobId;
use punctual_core::limits;
use std::sync::{Arc, LazyLock};

/// A transaction that deletes a lane locks its row first, and then checks whether the lane has jobs.
pub(crate) const HELD_LANES: &str = "SELECT id FROM lanes WHERE id = ANY($1) ORDER BY id FOR KEY SHARE";
macro_rules! session_columns {
    () => {
        "SELECT id, worker, turn, mode, beat, attention, beaten_at, lost, embedded FROM sessions "
    };
}
pub(crate) const SESSIONS: &str = concat!(session_columns!(), "WHERE id = ANY($1) ORDER BY id FOR UPDATE");
const SESSIONS_BY_MARK: &str = concat!(
    session_columns!(),
    "WHERE id = ANY($1) OR (lost AND $2) OR (embedded AND $3) ORDER BY id FOR UPDATE"
);
/// The payload may be large, and is read only with the whole job.
pub(crate) static JOBS: LazyLock<String> = LazyLock::new(|| {
    let columns = job_columns!().replace("jobs.payload", "CASE WHEN wanted.whole THEN jobs.payload END");
    format!(
        "SELECT {columns}, wanted.whole \
         FROM unnest($1::uuid[], $2::boolean[]) AS wanted(id, whole) JOIN jobs ON jobs.id = wanted.id \
         ORDER BY jobs.id FOR UPDATE OF jobs"
    )
});
pub(crate) const SCHEDULES: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules WHERE schedules.job = ANY($1) ORDER BY schedules.job FOR UPDATE"
);
pub(crate) const LIVE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM unnest($1::uuid[], $2::bigint[]) AS wanted(job, occurrence) \
     JOIN live ON live.job = wanted.job AND live.occurrence = wanted.occurrence \
     ORDER BY live.job, live.occurrence FOR UPDATE OF live"
);
/// Named ones, all of some jobs, and all that some sessions hold. Rows are locked one by one by key: their
/// number cannot be estimated, and a plan with a wrong estimate reads the whole table.
pub(crate) const LIVE_OF: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM (SELECT job, occurrence FROM \
       (SELECT named.job, named.occurrence FROM unnest($1::uuid[], $2::bigint[]) AS named(job, occurrence) \
        UNION SELECT opened.job, opened.occurrence FROM unnest($3::uuid[]) AS whole(job) CROSS JOIN LATERAL \
          (SELECT live.job, live.occurrence FROM live WHERE live.job = whole.job ORDER BY live.occurrence LIMIT $4) AS opened \
        UNION SELECT held.job, held.occurrence FROM unnest($5::bigint[], $6::bigint[]) AS holder(session, count) \
          CROSS JOIN LATERAL (SELECT live.job, live.occurrence FROM live WHERE live.session = holder.session \
            AND live.state = 2 ORDER BY live.job, live.occurrence LIMIT holder.count) AS held) AS keys \
       ORDER BY job, occurrence) AS wanted \
     CROSS JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job AND live.occurrence = wanted.occurrence \
       FOR UPDATE) AS live"
);
/// Reads the heads of all lanes without locks to see how the lowest ranks are distributed over them, and
/// then locks that many in each: a row that another transaction has locked is replaced by the next in its
/// lane. Each lane is scanned from its own rank.
pub(crate) const CLAIM: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM (SELECT best.lane, best.least, count(*) AS count FROM \
       (SELECT served.lane, served.least FROM unnest($1::bigint[], $2::bigint[]) AS served(lane, least) CROSS JOIN LATERAL \
          (SELECT live.rank, live.job, live.occurrence FROM live \
           WHERE live.lane = served.lane AND live.state = 1 AND live.rank >= served.least \
           ORDER BY live.rank, live.job, live.occurrence LIMIT $3) AS head \
        ORDER BY head.rank, head.job, head.occurrence LIMIT $3) AS best GROUP BY best.lane, best.least) AS share \
     CROSS JOIN LATERAL (SELECT * FROM live WHERE live.lane = share.lane AND live.state = 1 AND live.rank >= share.least \
       ORDER BY live.rank, live.job, live.occurrence LIMIT share.count FOR UPDATE SKIP LOCKED) AS live"
);

pub(crate) const FACTS: &str =
    concat!("SELECT jobs.id, jobs.lane, ", fact_columns!(), " FROM jobs WHERE jobs.id = ANY($1)");
const CANCELS: &str = "SELECT session, job, occurrence, attempt, epoch FROM live \
     WHERE session = ANY($1) AND state = 2 AND cancel_requested ORDER BY job, occurrence";
pub(crate) const QUEUES: &str =
    "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue";
const LIMITED_QUEUES: &str = "SELECT queue FROM queues WHERE queue = ANY($1) ORDER BY queue FOR UPDATE";
pub(crate) const STARTED: &str = "SELECT lanes.queue, least(sum(lane_tallies.queued) + sum(lane_tallies.running), 9223372036854775807)::bigint \
     FROM lanes JOIN lane_tallies ON lane_tallies.lane = lanes.id WHERE lanes.queue = ANY($1) GROUP BY lanes.queue";
pub(crate) const LIMITERS: &str = concat!(
    "SELECT wanted.limiter, ",
    each_limiter_count!(", ", "coalesce(limiter_tallies.", ", 0)"),
    ", limiter_paces.last_at FROM unnest($1::bigint[]) AS wanted(limiter) \
     LEFT JOIN limiter_tallies ON limiter_tallies.limiter = wanted.limiter \
     LEFT JOIN limiter_paces ON limiter_paces.limiter = wanted.limiter"
);
pub(crate) const LINES: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM unnest($1::bigint[], $2::bigint[]) AS wanted(line, count) CROSS JOIN LATERAL \
     (SELECT * FROM live WHERE live.line = wanted.line ORDER BY live.rank, live.job, live.occurrence \
      LIMIT wanted.count FOR UPDATE SKIP LOCKED) AS live"
);
/// The last queued executions by rank of a queue before a position.
pub(crate) const LAST_QUEUED: &str = "SELECT last.rank, last.job, last.occurrence FROM lanes CROSS JOIN LATERAL \
     (SELECT live.rank, live.job, live.occurrence FROM live WHERE live.lane = lanes.id AND live.state = 1 \
      AND (live.rank, live.job, live.occurrence) < ($2::bigint, $3::uuid, $4::bigint) \
      ORDER BY live.rank DESC, live.job DESC, live.occurrence DESC LIMIT $5) AS last \
     WHERE lanes.queue = $1 ORDER BY last.rank DESC, last.job DESC, last.occurrence DESC LIMIT $5";
pub(crate) const UNSTARTED: &str = "SELECT lanes.queue, least(sum(lane_tallies.waiting) + sum(lane_tallies.queued), 9223372036854775807)::bigint \
     FROM lanes JOIN lane_tallies ON lane_tallies.lane = lanes.id WHERE lanes.queue = ANY($1) GROUP BY lanes.queue";
const QUEUED_LANES: &str = "SELECT lanes.id, lanes.queue, lanes.job_type, least(sum(lane_tallies.queued), 9223372036854775807)::bigint \
     FROM lanes JOIN lane_tallies ON lane_tallies.lane = lanes.id WHERE lanes.queue = ANY($1) \
     GROUP BY lanes.id HAVING sum(lane_tallies.queued) > 0";
pub(crate) const ENDED: &str = "SELECT history.job, history.occurrence, history.attempt, history.epoch, history.session, \
     history.status FROM unnest($1::uuid[], $2::bigint[], $3::integer[]) AS wanted(job, occurrence, attempt) \
     JOIN history ON history.job = wanted.job AND history.occurrence = wanted.occurrence \
     AND history.attempt = wanted.attempt";
const SKIPPED: &str = "SELECT skipped.number, skipped.job, skipped.last, skipped.reason \
     FROM unnest($1::uuid[], $2::bigint[], $3::smallint[]) AS wanted(job, last, reason) JOIN skipped \
     ON skipped.job = wanted.job AND skipped.last = wanted.last AND skipped.reason = wanted.reason";
const DEAD_LETTERS: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    ", jobs.name, jobs.owner, jobs.lane",
    " FROM unnest($1::uuid[], $2::bigint[]) AS wanted(job, occurrence) \
     JOIN dead_letters ON dead_letters.job = wanted.job AND dead_letters.occurrence = wanted.occurrence \
     JOIN jobs ON jobs.id = dead_letters.job"
);
const LATEST_DEAD_LETTERS: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    ", jobs.name, jobs.owner, jobs.lane",
    " FROM unnest($1::uuid[]) AS wanted(job) CROSS JOIN LATERAL \
     (SELECT * FROM dead_letters WHERE dead_letters.job = wanted.job ORDER BY dead_letters.occurrence DESC LIMIT 1) \
     AS dead_letters JOIN jobs ON jobs.id = dead_letters.job"
);
const DEAD_OF_JOBS: &str = "SELECT job, occurrence FROM dead_letters WHERE job = ANY($1)";
const KEYS: &str = "SELECT job_keys.owner, job_keys.kind, job_keys.key, job_keys.job \
     FROM unnest($1::text[], $2::smallint[], $3::text[]) AS wanted(owner, kind, key) JOIN job_keys \
     ON job_keys.owner = wanted.owner AND job_keys.kind = wanted.kind AND job_keys.key = wanted.key";
const PARENTS: &str = "SELECT child, parent FROM dependencies WHERE child = ANY($1)";
const CHILDREN: &str = "SELECT children.parent, children.child FROM unnest($1::uuid[], $2::bigint[]) AS wanted(parent, count) \
     CROSS JOIN LATERAL (SELECT parent, child FROM dependencies WHERE dependencies.parent = wanted.parent \
     ORDER BY child LIMIT wanted.count) AS children";
const RESOLUTIONS: &str =
    "SELECT parent, succeeded FROM resolutions ORDER BY parent LIMIT $1 FOR UPDATE SKIP LOCKED";
const LAST_NOTES: &str = "SELECT notes.job, notes.occurrence, notes.epoch, notes.number \
     FROM unnest($1::uuid[], $2::bigint[]) AS wanted(job, occurrence) \
     JOIN notes ON notes.job = wanted.job AND notes.occurrence = wanted.occurrence";
const CHECKPOINTS: &str = "SELECT checkpoints.job, checkpoints.occurrence, checkpoints.document \
     FROM unnest($1::uuid[], $2::bigint[]) AS wanted(job, occurrence) \
     JOIN checkpoints ON checkpoints.job = wanted.job AND checkpoints.occurrence = wanted.occurrence";
const REQUESTS: &str = "SELECT requests.token, requests.key, requests.fingerprint, requests.begun_at, requests.seed, \
     requests.status, requests.location, requests.body \
     FROM unnest($1::text[], $2::text[]) AS wanted(token, key) \
     JOIN requests ON requests.token = wanted.token AND requests.key = wanted.key";

fn statement(part: RowKind) -> &'static str {
    match part {
        RowKind::HeldLanes => HELD_LANES,
        RowKind::Sessions => SESSIONS,
        RowKind::Jobs => &JOBS,
        RowKind::Schedules => SCHEDULES,
        RowKind::Live => LIVE,
        RowKind::Claims(_) => CLAIM,
        RowKind::Facts => FACTS,
        RowKind::Cancels => CANCELS,
        RowKind::Queues => QUEUES,
        RowKind::LimitedQueues => LIMITED_QUEUES,
        RowKind::Started => STARTED,
        RowKind::Limiters => LIMITERS,
        RowKind::Lines => LINES,
        RowKind::LastQueued => LAST_QUEUED,
        RowKind::QueuedLanes => QUEUED_LANES,
        RowKind::Unstarted => UNSTARTED,
        RowKind::Ended => ENDED,
        RowKind::Skipped => SKIPPED,
        RowKind::DeadLetters => DEAD_LETTERS,
        RowKind::LatestDeadLetters => LATEST_DEAD_LETTERS,
        RowKind::DeadOfJobs => DEAD_OF_JOBS,
        RowKind::Keys => KEYS,
        RowKind::Parents => PARENTS,
        RowKind::Children => CHILDREN,
        RowKind::Resolutions => RESOLUTIONS,
        RowKind::LastNotes => LAST_NOTES,
        RowKind::Checkpoints => CHECKPOINTS,
        RowKind::Requests => REQUESTS,
    }
}

/// Statements of one round, each with the kind of its rows.
#[derive(Default)]
pub(crate) struct ReadRound<'a> {
    pub parts: Vec<RowKind>,
    pub calls: Vec<StatementCall<'a>>,
}

impl<'a> ReadRound<'a> {
    /// Claims scan from the claim cursors.
    pub fn of(read_set: &'a ReadSet, cursors: &ClaimCursors, scan: ClaimScan) -> Self {
        let mut round = ReadRound::default();
        round.lock(read_set);
        for (index, claims) in read_set.claims.iter().enumerate() {
            round.claim(index, claims, cursors, scan);
        }
        for ask in unlocked(read_set, &read_set.facts) {
            match ask {
                Ask::Listed(part, list) => round.listed(part, list),
                Ask::Each(part, rows) => {
                    for row in rows {
                        round.add(part, statement(part), row.into_iter().map(value).collect());
                    }
                }
            }
        }
        round
    }

    /// The data of these jobs that assignments contain.
    pub fn facts(jobs: &[JobId]) -> Self {
        let mut round = ReadRound::default();
        round.listed(RowKind::Facts, ids(jobs));
        round
    }

    /// Repeats these requested claims, from the start of their lanes.
    pub fn claims(read_set: &'a ReadSet, indexes: &[usize], cursors: &ClaimCursors) -> Self {
        let mut round = ReadRound::default();
        for index in indexes {
            round.claim(*index, &read_set.claims[*index], cursors, ClaimScan::Whole);
        }
        round
    }

    fn claim(&mut self, index: usize, claims: &'a RequestedClaims, cursors: &ClaimCursors, scan: ClaimScan) {
        let RequestedClaims { lanes, count } = claims;
        let parameters =
            vec![value(lanes.as_slice()), value(cursors.least(scan, lanes)), value(limit(*count))];
        self.add(RowKind::Claims(index), CLAIM, parameters);
    }

    fn add(&mut self, part: RowKind, sql: &'static str, parameters: Vec<Parameter<'a>>) {
        self.parts.push(part);
        self.calls.push(StatementCall { sql, parameters });
    }

    fn listed(&mut self, part: RowKind, list: List<'a>) {
        if !list.is_empty() {
            self.add(part, statement(part), columns(list));
        }
    }

    fn lock(&mut self, read_set: &'a ReadSet) {
        self.listed(RowKind::HeldLanes, numbers(read_set.held_lanes.iter().copied()));
        let sessions = numbers(read_set.sessions.iter().map(|session| session.0));
        if read_set.lost_sessions || read_set.embedded_sessions {
            let sessions = column(read_set.sessions.iter().map(|session| session.0));
            let marks = vec![sessions, value(read_set.lost_sessions), value(read_set.embedded_sessions)];
            self.add(RowKind::Sessions, SESSIONS_BY_MARK, marks);
        } else {
            self.listed(RowKind::Sessions, sessions);
        }
        self.listed(RowKind::Jobs, jobs(read_set));
        self.listed(RowKind::Schedules, ids(&read_set.schedules));
        self.lock_live(read_set);
    }

    fn lock_live(&mut self, read_set: &'a ReadSet) {
        let live = occurrences(&read_set.live);
        if read_set.open_of_jobs.is_empty() && read_set.held_by.is_empty() {
            return self.listed(RowKind::Live, live);
        }
        let mut parameters = columns(live);
        parameters.extend(columns(ids(&read_set.open_of_jobs)));
        parameters.push(value(limit(limits::OPEN_OF_JOB_MAX)));
        parameters.push(column(read_set.held_by.keys().map(|session| session.0)));
        parameters.push(column(read_set.held_by.values().map(|count| limit(*count))));
        self.add(RowKind::Live, LIVE_OF, parameters);
    }
}

/// An array for each column.
pub(crate) fn columns(list: List<'_>) -> Vec<Parameter<'_>> {
    let list = Arc::new(list);
    (0..list.width()).map(|index| value(ListColumn { list: Arc::clone(&list), index })).collect()
}
