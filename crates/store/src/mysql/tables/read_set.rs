//! The read set of a transaction as statements: first those that lock, in the order of the fields of
//! [`ReadSet`], then those that only read and must see the state while the locks are held.
//!
//! A list is visited in the order in which it was sent, so it is sorted before. One list locks all rows of
//! a table that a round needs, because two sorted lists one after the other are not one order. If keys have
//! to be found first, that is done without locks.

use super::claims::CLAIM;
use crate::cells::get;
use crate::codecs::{fact_columns, limit, occurrence_id};
use crate::fault::Fault;
use crate::layout::{
    each_limiter_count, mysql_dead_letter_columns as dead_letter_columns, mysql_job_columns as job_columns,
    mysql_live_columns as live_columns, mysql_schedule_columns as schedule_columns,
};
use crate::mysql::connection::{Connection, for_share_of, for_update_of};
use crate::mysql::galera::touch_jobs;
use crate::mysql::lists::{documents, list};
use crate::mysql::names::look_up;
use crate::row_list::{List, ids, numbers, occurrences};
use crate::server::asks::{Ask, RowKind, jobs, unlocked};
use crate::server::loaded::{Gathering, lanes_of};
use crate::unit_of_work::{LaneCache, LoadedRows, ReadSet};
use mysql_async::{Row, Value};
use punctual_core::ids::{JobId, OccurrenceId};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A transaction that deletes a lane locks its row first, and then checks whether the lane has jobs.
pub(crate) const HELD_LANES: &str = concat!(
    "SELECT lanes.id FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN lanes FORCE INDEX (PRIMARY) ON lanes.id = given.number",
    for_share_of!("lanes")
);
pub(crate) const LOST_SESSIONS: &str = "SELECT id FROM sessions FORCE INDEX (sessions_lost) WHERE lost = 1";
pub(crate) const EMBEDDED_SESSIONS: &str =
    "SELECT id FROM sessions FORCE INDEX (sessions_embedded) WHERE embedded = 1";
pub(crate) const SESSIONS: &str = concat!(
    "SELECT sessions.id, sessions.worker, sessions.turn, sessions.mode, sessions.beat, sessions.attention, \
     sessions.beaten_at, sessions.lost, sessions.embedded FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN sessions FORCE INDEX (PRIMARY) ON sessions.id = given.number",
    for_update_of!("sessions")
);
/// The payload may be large, and is read only with the whole job.
pub(crate) static JOBS: LazyLock<String> = LazyLock::new(|| {
    let columns = job_columns!().replace("jobs.payload", "IF(given.whole, jobs.payload, NULL)");
    const FROM: &str = concat!(
        list!(0 job id, 1 whole int),
        " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job)",
        for_update_of!("jobs")
    );
    format!("SELECT {columns}, given.whole FROM {FROM}")
});
pub(crate) const SCHEDULES: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN schedules FORCE INDEX (PRIMARY) ON schedules.job = UNHEX(given.job)",
    for_update_of!("schedules")
);
pub(crate) const LIVE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence",
    for_update_of!("live")
);
/// All open occurrences of some jobs, ordered by key.
pub(crate) const LIVE_OF_JOBS: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job)",
    for_update_of!("live")
);
pub(crate) const KEYS_OF_JOBS: &str = concat!(
    "SELECT live.job, live.occurrence FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job)"
);
pub(crate) const KEYS_OF_SESSION: &str = "SELECT job, occurrence FROM live FORCE INDEX (live_session) \
     WHERE session = ? ORDER BY job, occurrence LIMIT ?";

pub(crate) const FACTS: &str = concat!(
    "SELECT jobs.id, jobs.lane, ",
    fact_columns!(),
    " FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job)"
);
pub(crate) const CANCELS: &str = concat!(
    "SELECT live.session, live.job, live.occurrence, live.attempt, live.epoch FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN live FORCE INDEX (live_session) ON live.session = given.number \
     WHERE live.cancel_requested = 1"
);
pub(crate) const QUEUES: &str =
    "SELECT queue, paused_at, max_depth, limits, unplaced FROM queues ORDER BY queue";
/// A transaction that checks whether a queue is full locks it until the result is used: two transactions
/// that saw the last free place must not both take it.
pub(crate) const LOCK_QUEUES: &str = concat!(
    "SELECT queues.queue FROM ",
    list!(0 queue name),
    " STRAIGHT_JOIN queues FORCE INDEX (PRIMARY) ON queues.queue = given.queue",
    for_update_of!("queues")
);
pub(crate) const STARTED: &str = concat!(
    "SELECT lanes.queue, CAST(SUM(lane_tallies.queued) + SUM(lane_tallies.running) AS SIGNED) FROM ",
    list!(0 queue name),
    " STRAIGHT_JOIN lanes FORCE INDEX (lanes_name) ON lanes.queue = given.queue \
     STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = lanes.id GROUP BY lanes.queue"
);
pub(crate) const LIMITERS: &str = concat!(
    "SELECT given.number, ",
    each_limiter_count!(", ", "COALESCE(limiter_tallies.", ", 0)"),
    ", limiter_paces.last_at FROM ",
    list!(0 number int),
    " LEFT JOIN limiter_tallies FORCE INDEX (PRIMARY) ON limiter_tallies.limiter = given.number \
     LEFT JOIN limiter_paces FORCE INDEX (PRIMARY) ON limiter_paces.limiter = given.number"
);
pub(crate) const UNSTARTED: &str = concat!(
    "SELECT lanes.queue, CAST(SUM(lane_tallies.waiting) + SUM(lane_tallies.queued) AS SIGNED) FROM ",
    list!(0 queue name),
    " STRAIGHT_JOIN lanes FORCE INDEX (lanes_name) ON lanes.queue = given.queue \
     STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = lanes.id GROUP BY lanes.queue"
);
pub(crate) const QUEUED_LANES: &str = concat!(
    "SELECT lanes.id, lanes.queue, lanes.job_type, CAST(SUM(lane_tallies.queued) AS SIGNED) FROM ",
    list!(0 queue name),
    " STRAIGHT_JOIN lanes FORCE INDEX (lanes_name) ON lanes.queue = given.queue \
     STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = lanes.id \
     GROUP BY lanes.id, lanes.queue, lanes.job_type HAVING SUM(lane_tallies.queued) > 0"
);
pub(crate) const ENDED: &str = concat!(
    "SELECT history.job, history.occurrence, history.attempt, history.epoch, history.session, history.status FROM ",
    list!(0 job id, 1 occurrence int, 2 attempt int),
    " STRAIGHT_JOIN history FORCE INDEX (history_job) ON history.job = UNHEX(given.job) \
     AND history.occurrence = given.occurrence AND history.attempt = given.attempt"
);
pub(crate) const SKIPPED: &str = concat!(
    "SELECT skipped.number, skipped.job, skipped.last, skipped.reason FROM ",
    list!(0 job id, 1 last int, 2 reason int),
    " STRAIGHT_JOIN skipped FORCE INDEX (skipped_job) ON skipped.job = UNHEX(given.job) \
     AND skipped.last = given.last WHERE skipped.reason = given.reason"
);
pub(crate) const DEAD_LETTERS: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    ", jobs.name, jobs.owner, jobs.lane FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN dead_letters FORCE INDEX (dead_letters_occurrence) ON dead_letters.job = UNHEX(given.job) \
     AND dead_letters.occurrence = given.occurrence \
     STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = dead_letters.job"
);
pub(crate) const LATEST_DEAD_LETTERS: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    ", jobs.name, jobs.owner, jobs.lane FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN dead_letters FORCE INDEX (dead_letters_occurrence) ON dead_letters.job = UNHEX(given.job) \
     AND dead_letters.occurrence = (SELECT MAX(latest.occurrence) FROM dead_letters AS latest \
       FORCE INDEX (dead_letters_occurrence) WHERE latest.job = UNHEX(given.job)) \
     STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = dead_letters.job"
);
pub(crate) const DEAD_OF_JOBS: &str = concat!(
    "SELECT dead_letters.job, dead_letters.occurrence FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN dead_letters FORCE INDEX (dead_letters_occurrence) ON dead_letters.job = UNHEX(given.job)"
);
pub(crate) const KEYS: &str = concat!(
    "SELECT job_keys.owner, job_keys.kind, job_keys.`key`, job_keys.job FROM ",
    list!(0 owner name, 1 kind int, 2 name name),
    " STRAIGHT_JOIN job_keys FORCE INDEX (PRIMARY) ON job_keys.owner = given.owner \
     AND job_keys.kind = given.kind AND job_keys.`key` = given.name"
);
pub(crate) const PARENTS: &str = concat!(
    "SELECT dependencies.child, dependencies.parent FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN dependencies FORCE INDEX (dependencies_child) ON dependencies.child = UNHEX(given.job)"
);
pub(crate) const CHILDREN: &str = "SELECT parent, child FROM dependencies FORCE INDEX (PRIMARY) \
     WHERE parent = ? ORDER BY child LIMIT ?";
const RESOLUTIONS: &str =
    "SELECT parent, succeeded FROM resolutions ORDER BY parent LIMIT ? FOR UPDATE SKIP LOCKED";
pub(crate) const LAST_NOTES: &str = concat!(
    "SELECT notes.job, notes.occurrence, notes.epoch, notes.number FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN notes FORCE INDEX (PRIMARY) ON notes.job = UNHEX(given.job) \
     AND notes.occurrence = given.occurrence"
);
pub(crate) const CHECKPOINTS: &str = concat!(
    "SELECT checkpoints.job, checkpoints.occurrence, checkpoints.document FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN checkpoints FORCE INDEX (PRIMARY) ON checkpoints.job = UNHEX(given.job) \
     AND checkpoints.occurrence = given.occurrence"
);
pub(crate) const REQUESTS: &str = concat!(
    "SELECT requests.token, requests.`key`, requests.fingerprint, requests.begun_at, requests.seed, requests.status, \
     requests.location, requests.body FROM ",
    list!(0 token name, 1 name name),
    " STRAIGHT_JOIN requests FORCE INDEX (PRIMARY) ON requests.token = given.token \
     AND requests.`key` = given.name"
);

fn statement(part: RowKind) -> &'static str {
    match part {
        RowKind::HeldLanes => HELD_LANES,
        RowKind::Sessions => SESSIONS,
        RowKind::Jobs => &JOBS,
        RowKind::Schedules => SCHEDULES,
        RowKind::Live => LIVE,
        RowKind::Facts => FACTS,
        RowKind::Cancels => CANCELS,
        RowKind::Queues => QUEUES,
        RowKind::LimitedQueues => LOCK_QUEUES,
        RowKind::Started => STARTED,
        RowKind::Limiters => LIMITERS,
        // In the claim index each wait list looks like a lane.
        RowKind::Claims(_) | RowKind::Lines => CLAIM,
        RowKind::LastQueued => unreachable!("it takes several statements"),
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

/// One round of loading.
pub(super) struct Fetching<'a> {
    pub connection: &'a mut Connection,
    pub lanes: &'a LaneCache,
    pub(super) gathering: Gathering,
}

impl<'a> Fetching<'a> {
    /// Locks and reads the whole read set.
    pub async fn run(
        connection: &'a mut Connection,
        lanes: &'a LaneCache,
        read_set: &ReadSet,
    ) -> Result<LoadedRows, Fault> {
        let gathering = Gathering::new(read_set.claims.len());
        let mut fetching = Fetching { connection, lanes, gathering };
        fetching.lock(read_set).await?;
        // Claims need their jobs' data.
        let mut facts: BTreeSet<JobId> = read_set.facts.clone();
        facts.extend(fetching.gathering.claimed().map(|id| id.job));
        for ask in unlocked(read_set, &facts) {
            match ask {
                // Only the first rows of each key.
                Ask::Listed(part @ (RowKind::Lines | RowKind::Children), list) => {
                    for row in list.rows() {
                        fetching.ask_once(part, row.iter().cloned().map(Value::from).collect()).await?;
                    }
                }
                Ask::Listed(part, list) => fetching.ask(part, list).await?,
                Ask::Each(RowKind::LastQueued, _) => {
                    for ((queue, before), count) in &read_set.last_queued {
                        let places = fetching.last_queued(queue, *before, *count).await?;
                        fetching.gathering.take_last_queued(places);
                    }
                }
                Ask::Each(part, rows) => {
                    for row in rows {
                        fetching.ask_once(part, row.into_iter().map(Value::from).collect()).await?;
                    }
                }
            }
        }
        Ok(fetching.gathering.finish())
    }

    /// One statement for each document.
    async fn ask(&mut self, part: RowKind, list: List<'_>) -> Result<(), Fault> {
        for document in documents(&list) {
            self.ask_once(part, vec![document]).await?;
        }
        Ok(())
    }

    async fn ask_once(&mut self, part: RowKind, values: Vec<Value>) -> Result<(), Fault> {
        let rows = self.connection.all(statement(part), values).await?;
        self.take(part, &rows).await
    }

    pub(super) async fn take(&mut self, part: RowKind, rows: &[Row]) -> Result<(), Fault> {
        let (mut named, unknown) = self.lanes.known(&lanes_of(part, rows)?);
        if !unknown.is_empty() {
            let learned = look_up(self.lanes, self.connection, unknown).await?;
            named.extend(learned.iter().cloned());
            self.gathering.learn_lanes(learned);
        }
        self.gathering.take(part, rows, &named)
    }

    async fn lock(&mut self, read_set: &ReadSet) -> Result<(), Fault> {
        self.ask(RowKind::HeldLanes, numbers(read_set.held_lanes.iter().copied())).await?;
        let sessions = self.sessions(read_set).await?;
        self.ask(RowKind::Sessions, numbers(sessions)).await?;
        self.ask(RowKind::Jobs, jobs(read_set)).await?;
        if self.connection.node().is_some() {
            touch_jobs(self.connection, &self.gathering.jobs()).await?;
        }
        self.ask(RowKind::Schedules, ids(&read_set.schedules)).await?;
        self.lock_live(read_set).await?;
        for (index, wanted) in read_set.claims.iter().enumerate() {
            self.claim(index, wanted).await?;
        }
        Ok(())
    }

    /// The numbers of all requested sessions, for whatever reason they are requested.
    async fn sessions(&mut self, read_set: &ReadSet) -> Result<BTreeSet<i64>, Fault> {
        let mut sessions: BTreeSet<i64> = read_set.sessions.iter().map(|session| session.0).collect();
        for (is_wanted, sql) in
            [(read_set.lost_sessions, LOST_SESSIONS), (read_set.embedded_sessions, EMBEDDED_SESSIONS)]
        {
            if is_wanted {
                for row in self.connection.all(sql, vec![]).await? {
                    sessions.insert(get(&row, 0)?);
                }
            }
        }
        Ok(sessions)
    }

    async fn lock_live(&mut self, read_set: &ReadSet) -> Result<(), Fault> {
        let is_of_job = |id: &OccurrenceId| read_set.open_of_jobs.contains(&id.job);
        let of_jobs = documents(&ids(&read_set.open_of_jobs));
        if read_set.held_by.is_empty() && read_set.live.iter().all(is_of_job) {
            for list in of_jobs {
                let rows = self.connection.all(LIVE_OF_JOBS, vec![list]).await?;
                self.take(RowKind::Live, &rows).await?;
            }
            return Ok(());
        }
        let mut keys: BTreeSet<OccurrenceId> = read_set.live.clone();
        for list in of_jobs {
            keys.extend(read_keys(&self.connection.all(KEYS_OF_JOBS, vec![list]).await?)?);
        }
        for (session, count) in &read_set.held_by {
            let bounds = vec![session.0.into(), limit(*count).into()];
            keys.extend(read_keys(&self.connection.all(KEYS_OF_SESSION, bounds).await?)?);
        }
        self.ask(RowKind::Live, occurrences(&keys)).await
    }
}

fn read_keys(rows: &[Row]) -> Result<Vec<OccurrenceId>, Fault> {
    rows.iter().map(|row| occurrence_id(row, 0)).collect()
}
