//! Converts returned rows for the unit of work.

use super::read_set::RowKind;
use crate::codes::{queue_row, read_limiter, read_limits, read_placing};
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::postgres::rows::{
    JOB_COLUMNS, count, decode, execution_id, get, job_id, occurrence_id, read_dead_letter, read_facts,
    read_job, read_live, read_schedule, read_settings, time, time_or_none, version,
};
use crate::rows::{Ended, JobKey, JobTerms, LiveRow, RequestRow, SessionPlace};
use crate::unit_of_work::{
    LoadedLimiter, LoadedRows, LoadedSession, LoadedSkip, NamedLanes, RequestedClaims, name_in,
};
use punctual_core::ids::{Epoch, OccurrenceId, SessionId};
use punctual_core::notes::{Checkpoint, LastNote};
use punctual_core::placing::{Place, Placing};
use punctual_core::ports::{Lane, LeaseRef, QueueRow, RequestKey, StoredAnswer};
use punctual_core::queue::QueueSettings;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;

/// Collects the results of the rounds of one fetch.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    found: LoadedRows,
    /// Each row once, for whatever reason it was requested.
    live: BTreeMap<OccurrenceId, LiveRow>,
    /// The number of malformed rows for each requested claim.
    passed_over: Vec<usize>,
}

/// The column with the number of a lane that must be known to read the row.
fn lane_column(part: RowKind) -> Option<usize> {
    match part {
        RowKind::Jobs | RowKind::Facts => Some(1),
        RowKind::Schedules => Some(6),
        RowKind::DeadLetters | RowKind::LatestDeadLetters => Some(11),
        RowKind::Live | RowKind::Claims(_) => Some(2),
        _ => None,
    }
}

/// The lanes that these rows refer to.
pub(crate) fn lanes_of(parts: &[RowKind], answers: &[Vec<Row>]) -> Result<BTreeSet<i64>, Fault> {
    let mut lanes = BTreeSet::new();
    for (part, rows) in parts.iter().zip(answers) {
        if let Some(column) = lane_column(*part) {
            for row in rows {
                lanes.insert(get(row, column)?);
            }
        }
    }
    Ok(lanes)
}

impl Gathering {
    /// For this many requested claims.
    pub fn new(claims: usize) -> Self {
        Gathering {
            found: LoadedRows { claims: vec![vec![]; claims], ..LoadedRows::default() },
            live: BTreeMap::new(),
            passed_over: vec![0; claims],
        }
    }

    /// Claimable executions.
    pub fn claimed(&self) -> impl Iterator<Item = OccurrenceId> {
        self.found.claims.iter().flatten().copied()
    }

    /// The requested claims for which fewer executions were found than requested.
    pub fn short_claims(&self, wanted: &[RequestedClaims]) -> Vec<usize> {
        let is_short = |index: &usize| self.found.claims[*index].len() < wanted[*index].count;
        (0..wanted.len()).filter(is_short).collect()
    }

    /// How many executions were found for the requested claim with this index.
    pub fn found_claims(&self, index: usize) -> usize {
        self.found.claims[index].len()
    }

    /// The lanes and ranks of the claimable executions.
    pub fn claimed_places(&self) -> impl Iterator<Item = (i64, i64)> {
        let row = |id| self.live.get(&id).map(|row| (row.lane, row.live.rank));
        self.claimed().filter_map(row)
    }

    /// Names that were looked up meanwhile.
    pub fn learn_lanes(&mut self, lanes: Vec<(i64, Lane)>) {
        self.found.lanes.extend(lanes);
    }

    pub fn finish(self) -> LoadedRows {
        LoadedRows { live: self.live.into_values().collect(), ..self.found }
    }

    pub fn take(&mut self, part: RowKind, rows: &[Row], lanes: &NamedLanes) -> Result<(), Fault> {
        if let RowKind::Claims(index) = part {
            return self.take_claims(index, rows, lanes);
        }
        if part == RowKind::LastQueued {
            let place = |row| Ok(Place { rank: get(row, 0)?, occurrence: occurrence_id(row, 1)? });
            self.found.last_queued.push(rows.iter().map(place).collect::<Result<_, Fault>>()?);
            return Ok(());
        }
        for row in rows {
            let taken = match part {
                RowKind::Jobs | RowKind::Schedules | RowKind::Facts => self.take_of_job(part, row, lanes),
                RowKind::DeadLetters | RowKind::LatestDeadLetters | RowKind::DeadOfJobs => {
                    self.take_dead(part, row, lanes)
                }
                _ => self.take_other(part, row, lanes),
            };
            if is_needed(part, row)? {
                taken?;
            } else {
                pass_over(taken)?;
            }
        }
        Ok(())
    }

    /// The number of rows to request, so that this claim gets enough although some rows are malformed;
    /// `None` if there are no more rows, or none is malformed.
    pub fn wider(&self, index: usize, wanted: &RequestedClaims) -> Option<RequestedClaims> {
        let (read, passed_over) = (self.found.claims[index].len(), self.passed_over[index]);
        let is_cut_off = read + passed_over >= wanted.count;
        (is_cut_off && passed_over > 0).then(|| RequestedClaims { count: wanted.count * 2, ..wanted.clone() })
    }

    fn take_claims(&mut self, index: usize, rows: &[Row], lanes: &NamedLanes) -> Result<(), Fault> {
        let mut places = Vec::with_capacity(rows.len());
        self.passed_over[index] = 0;
        for row in rows {
            let Some(row) = pass_over(read_live_of(row, lanes))? else {
                self.passed_over[index] += 1;
                continue;
            };
            places.push((row.live.rank, row.live.id));
            self.live.insert(row.live.id, row);
        }
        places.sort_unstable();
        self.found.claims[index] = places.into_iter().map(|(_, id)| id).collect();
        Ok(())
    }

    fn take_of_job(&mut self, part: RowKind, row: &Row, lanes: &NamedLanes) -> Result<(), Fault> {
        let found = &mut self.found;
        match part {
            // After the columns of a job: whether the whole job was requested.
            RowKind::Jobs if get(row, JOB_COLUMNS)? => {
                let job = read_job(row, 0)?;
                let lane = name_in(lanes, job.lane)?;
                found.jobs.push(job.named(lane));
            }
            RowKind::Jobs => {
                let terms = JobTerms { settings: read_settings(row, 5)?, mark: decode(row, 2, "jobs.mark")? };
                found.terms.push((job_id(row, 0)?, terms));
            }
            RowKind::Schedules => {
                let schedule = read_schedule(row, 0)?;
                let lane = name_in(lanes, schedule.lane)?;
                found.schedules.push(schedule.named(lane));
            }
            _ => found.facts.push((job_id(row, 0)?, read_facts(row, 2, name_in(lanes, get(row, 1)?)?)?)),
        }
        Ok(())
    }

    fn take_dead(&mut self, part: RowKind, row: &Row, lanes: &NamedLanes) -> Result<(), Fault> {
        let found = &mut self.found;
        let letter = |row| read_dead_letter(row, 0, name_in(lanes, get(row, 11)?)?);
        match part {
            RowKind::DeadLetters => found.dead_letters.push(letter(row)?),
            RowKind::LatestDeadLetters => found.latest_dead_letters.push(letter(row)?),
            _ => found.dead_of_jobs.push(occurrence_id(row, 0)?),
        }
        Ok(())
    }

    fn take_other(&mut self, part: RowKind, row: &Row, lanes: &NamedLanes) -> Result<(), Fault> {
        let found = &mut self.found;
        match part {
            RowKind::Sessions => found.sessions.push(read_session(row)?),
            RowKind::Live => {
                let row = read_live_of(row, lanes)?;
                self.live.insert(row.live.id, row);
            }
            RowKind::Cancels => {
                let epoch = Epoch(version(row, 4, "live.epoch")?);
                let lease = LeaseRef { execution: execution_id(row, 1)?, epoch };
                found.cancels.push((SessionId(get(row, 0)?), lease));
            }
            RowKind::Queues => found.queues.push(read_queue(row)?),
            RowKind::FullQueues => {}
            RowKind::HeldLanes => found.held_lanes.push(get(row, 0)?),
            RowKind::QueuedLanes => {
                let lane = Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?);
                found.queued_lanes.push((get(row, 0)?, lane, get(row, 3)?));
            }
            RowKind::Started => found.started.push((get(row, 0)?, get(row, 1)?)),
            RowKind::Limiters => found.limiters.extend(read_limiter_row(row)?),
            RowKind::Unstarted => {
                // Shards are written at different times; a sum that is below zero for a moment counts as
                // zero.
                let unstarted = u64::try_from(get::<i64>(row, 1)?).unwrap_or(0);
                found.unstarted.push((get(row, 0)?, unstarted));
            }
            RowKind::Ended => {
                let session = get::<Option<i64>>(row, 4)?.map(SessionId);
                let epoch = Epoch(version(row, 3, "history.epoch")?);
                let ended = Ended { epoch, session, status: decode(row, 5, "history.status")? };
                found.ended.push((execution_id(row, 0)?, ended));
            }
            RowKind::Skipped => found.skipped.push(LoadedSkip {
                number: get(row, 0)?,
                job: job_id(row, 1)?,
                last: time(row, 2)?,
                reason: decode(row, 3, "skipped.reason")?,
            }),
            RowKind::Keys => {
                let key =
                    JobKey { owner: get(row, 0)?, kind: decode(row, 1, "job_keys.kind")?, key: get(row, 2)? };
                found.keys.push((key, job_id(row, 3)?));
            }
            RowKind::Parents => found.parents.push((job_id(row, 0)?, job_id(row, 1)?)),
            RowKind::Children => found.children.push((job_id(row, 0)?, job_id(row, 1)?)),
            RowKind::Resolutions => found.resolutions.push((job_id(row, 0)?, get(row, 1)?)),
            RowKind::LastNotes => {
                let epoch = Epoch(version(row, 2, "notes.epoch")?);
                let last = LastNote { epoch, number: count(row, 3, "notes.number")? };
                found.last_notes.push((occurrence_id(row, 0)?, last));
            }
            RowKind::Checkpoints => {
                found.checkpoints.push((occurrence_id(row, 0)?, read_checkpoint(row, 2)?))
            }
            _ => found.requests.push(read_request(row)?),
        }
        Ok(())
    }
}

/// Whether a malformed row is a fault. All others count as missing, because the caller can continue without
/// them.
fn is_needed(part: RowKind, row: &Row) -> Result<bool, Fault> {
    match part {
        RowKind::Jobs => get(row, JOB_COLUMNS),
        // Continuing without them would exceed a limit, or overwrite existing data.
        RowKind::Limiters | RowKind::Started | RowKind::Unstarted | RowKind::Keys | RowKind::Requests => {
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// A live row in an existing lane.
fn read_live_of(row: &Row, lanes: &NamedLanes) -> Result<LiveRow, Fault> {
    let row = read_live(row, 0)?;
    name_in(lanes, row.lane)?;
    Ok(row)
}

fn read_session(row: &Row) -> Result<LoadedSession, Fault> {
    let place = SessionPlace {
        turn: count(row, 2, "sessions.turn")?,
        mode: decode(row, 3, "sessions.mode")?,
        beat: count(row, 4, "sessions.beat")?,
        attention: get(row, 5)?,
    };
    Ok(LoadedSession {
        id: SessionId(get(row, 0)?),
        worker: get(row, 1)?,
        place,
        beaten_at: time(row, 6)?,
        lost: get(row, 7)?,
        embedded: get(row, 8)?,
    })
}

pub(crate) fn read_limiter_row(row: &Row) -> Result<Option<LoadedLimiter>, Fault> {
    let Some(id) = read_limiter(Some(get(row, 0)?))? else { return Ok(None) };
    Ok(Some(LoadedLimiter { id, counts: [get(row, 1)?, get(row, 2)?], last_at: time_or_none(row, 3)? }))
}

/// A row whose settings cannot be read carries the reason.
pub(crate) fn read_queue(row: &Row) -> Result<QueueRow, Fault> {
    queue_row(get(row, 0)?, time_or_none(row, 1)?, read_queue_settings(row))
}

fn read_queue_settings(row: &Row) -> Result<(QueueSettings, Option<Placing>), Fault> {
    let max_depth = match get::<Option<i64>>(row, 2)? {
        Some(_) => Some(count(row, 2, "queues.max_depth")?),
        None => None,
    };
    let limits = read_limits(get(row, 3)?)?;
    Ok((QueueSettings { max_depth, limits }, read_placing(get(row, 4)?)?))
}

pub(crate) fn read_checkpoint(row: &Row, column: usize) -> Result<Checkpoint, Fault> {
    Checkpoint::stored(get::<String>(row, column)?)
        .map_err(|too_large| Fault::damaged("checkpoints.document", too_large))
}

fn read_request(row: &Row) -> Result<(RequestKey, RequestRow), Fault> {
    let fingerprint: &[u8] = get(row, 2)?;
    let answer = match get::<Option<i32>>(row, 5)? {
        None => None,
        Some(status) => Some(StoredAnswer {
            status: u16::try_from(status).map_err(|_| Fault::damaged("requests.status", status))?,
            location: get(row, 6)?,
            body: get::<Option<String>>(row, 7)?.unwrap_or_default(),
        }),
    };
    let request = RequestRow {
        fingerprint: fingerprint
            .try_into()
            .map_err(|_| Fault::damaged("requests.fingerprint", fingerprint.len()))?,
        begun_at: time(row, 3)?,
        seed: get::<i64>(row, 4)?.cast_unsigned(),
        answer,
    };
    Ok((RequestKey { token: get(row, 0)?, key: get(row, 1)? }, request))
}
