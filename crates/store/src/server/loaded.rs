//! Converts returned rows for the unit of work.

use super::asks::RowKind;
use crate::cells::{RowCells, get, read};
use crate::codecs::{
    LETTER_COLUMNS, execution_id, job_id, occurrence_id, read_dead_letter, read_facts, read_job, read_live,
    read_schedule, read_terms,
};
use crate::codes::{queue_row, read_limiter, read_limits, read_readmission};
use crate::counters::{LimiterCounts, StoredCounts};
use crate::fault::Fault;
use crate::layout::{JOBS, JobColumns, LIVE, SCHEDULES};
use crate::malformed::skip_malformed;
use crate::rows::{EndedAttempt, JobKey, LiveRow, RequestRow, SessionPlace};
use crate::unit_of_work::{
    LoadedLimiter, LoadedRows, LoadedSession, LoadedSkip, NamedLanes, RequestedClaims, name_in,
};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::notes::{Checkpoint, LastNote};
use punctual_core::ports::{Lane, LeaseRef, QueueRow, RequestKey, StoredAnswer};
use punctual_core::queue::QueueSettings;
use punctual_core::readmission::{QueuePosition, Readmission};
use std::collections::{BTreeMap, BTreeSet};

/// Collects the results of the rounds of one fetch.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    found: LoadedRows,
    /// Each row once, for whatever reason it was requested.
    live: BTreeMap<OccurrenceId, LiveRow>,
    /// The number of malformed rows for each requested claim.
    skipped_rows: Vec<usize>,
}

/// The column with the number of a lane that must be known to read the row.
fn lane_column(part: RowKind) -> Option<usize> {
    match part {
        RowKind::Facts => Some(1),
        RowKind::Jobs => Some(const { JOBS.at("lane") }),
        RowKind::Schedules => Some(const { SCHEDULES.at("lane") }),
        RowKind::DeadLetters | RowKind::LatestDeadLetters => Some(LETTER_COLUMNS - 1),
        RowKind::Live | RowKind::Lines | RowKind::Claims(_) => Some(const { LIVE.at("lane") }),
        _ => None,
    }
}

/// The lanes that these rows refer to.
pub(crate) fn lanes_of(part: RowKind, rows: &[impl RowCells]) -> Result<BTreeSet<i64>, Fault> {
    match lane_column(part) {
        Some(column) => rows.iter().map(|row| get(row, column)).collect(),
        None => Ok(BTreeSet::new()),
    }
}

impl Gathering {
    /// For this many requested claims.
    pub fn new(claims: usize) -> Self {
        Gathering {
            found: LoadedRows { claims: vec![vec![]; claims], ..LoadedRows::default() },
            live: BTreeMap::new(),
            skipped_rows: vec![0; claims],
        }
    }

    /// The jobs that are locked.
    pub fn jobs(&self) -> BTreeSet<JobId> {
        let whole = self.found.jobs.iter().map(|row| row.job.id);
        whole.chain(self.found.terms.iter().map(|(job, _)| *job)).collect()
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

    /// The last queued executions by rank, for one request.
    pub fn take_last_queued(&mut self, places: Vec<QueuePosition>) {
        self.found.last_queued.push(places);
    }

    /// Names that were looked up meanwhile.
    pub fn learn_lanes(&mut self, lanes: Vec<(i64, Lane)>) {
        self.found.lanes.extend(lanes);
    }

    pub fn finish(self) -> LoadedRows {
        LoadedRows { live: self.live.into_values().collect(), ..self.found }
    }

    pub fn take(&mut self, part: RowKind, rows: &[impl RowCells], lanes: &NamedLanes) -> Result<(), Fault> {
        if let RowKind::Claims(index) = part {
            return self.take_claims(index, rows, lanes);
        }
        if part == RowKind::LastQueued {
            let place = |row| Ok(QueuePosition { rank: get(row, 0)?, occurrence: occurrence_id(row, 1)? });
            self.take_last_queued(rows.iter().map(place).collect::<Result<_, Fault>>()?);
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
                skip_malformed(taken)?;
            }
        }
        Ok(())
    }

    /// The number of rows to request, so that this claim gets enough although some rows are malformed;
    /// `None` if there are no more rows, or none is malformed.
    pub fn wider(&self, index: usize, wanted: &RequestedClaims) -> Option<RequestedClaims> {
        let (read, skipped_rows) = (self.found.claims[index].len(), self.skipped_rows[index]);
        let is_cut_off = read + skipped_rows >= wanted.count;
        (is_cut_off && skipped_rows > 0)
            .then(|| RequestedClaims { count: wanted.count * 2, ..wanted.clone() })
    }

    fn take_claims(&mut self, index: usize, rows: &[impl RowCells], lanes: &NamedLanes) -> Result<(), Fault> {
        let mut places = Vec::with_capacity(rows.len());
        self.skipped_rows[index] = 0;
        for row in rows {
            let Some(row) = skip_malformed(read_live_of(row, lanes))? else {
                self.skipped_rows[index] += 1;
                continue;
            };
            places.push((row.live.rank, row.live.id));
            self.live.insert(row.live.id, row);
        }
        places.sort_unstable();
        self.found.claims[index] = places.into_iter().map(|(_, id)| id).collect();
        Ok(())
    }

    fn take_of_job(&mut self, part: RowKind, row: &impl RowCells, lanes: &NamedLanes) -> Result<(), Fault> {
        let found = &mut self.found;
        match part {
            // After the columns of a job: whether the whole job was requested.
            RowKind::Jobs if get(row, JobColumns::COUNT)? => {
                let job = read_job(row, 0)?;
                let lane = name_in(lanes, job.lane)?;
                found.jobs.push(job.named(lane));
            }
            RowKind::Jobs => found.terms.push((job_id(row, 0)?, read_terms(row)?)),
            RowKind::Schedules => {
                let schedule = read_schedule(row, 0)?;
                let lane = name_in(lanes, schedule.lane)?;
                found.schedules.push(schedule.named(lane));
            }
            _ => found.facts.push((job_id(row, 0)?, read_facts(row, 2, name_in(lanes, get(row, 1)?)?)?)),
        }
        Ok(())
    }

    fn take_dead(&mut self, part: RowKind, row: &impl RowCells, lanes: &NamedLanes) -> Result<(), Fault> {
        let found = &mut self.found;
        let letter = |row| read_dead_letter(row, 0, name_in(lanes, get(row, LETTER_COLUMNS - 1)?)?);
        match part {
            RowKind::DeadLetters => found.dead_letters.push(letter(row)?),
            RowKind::LatestDeadLetters => found.latest_dead_letters.push(letter(row)?),
            _ => found.dead_of_jobs.push(occurrence_id(row, 0)?),
        }
        Ok(())
    }

    fn take_other(&mut self, part: RowKind, row: &impl RowCells, lanes: &NamedLanes) -> Result<(), Fault> {
        let found = &mut self.found;
        match part {
            RowKind::Sessions => found.sessions.push(read_session(row)?),
            RowKind::Live | RowKind::Lines => {
                let row = read_live_of(row, lanes)?;
                self.live.insert(row.live.id, row);
            }
            RowKind::Cancels => {
                let epoch = read(row, 4, "live.epoch")?;
                let lease = LeaseRef { execution: execution_id(row, 1)?, epoch };
                found.cancels.push((SessionId(get(row, 0)?), lease));
            }
            RowKind::Queues => found.queues.push(read_queue(row)?),
            RowKind::LimitedQueues => {}
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
                let session = get(row, 4)?;
                let epoch = read(row, 3, "history.epoch")?;
                let ended = EndedAttempt { epoch, session, status: read(row, 5, "history.status")? };
                found.ended.push((execution_id(row, 0)?, ended));
            }
            RowKind::Skipped => found.skipped.push(LoadedSkip {
                number: get(row, 0)?,
                job: job_id(row, 1)?,
                last: read(row, 2, "skipped.last")?,
                reason: read(row, 3, "skipped.reason")?,
            }),
            RowKind::Keys => {
                let key =
                    JobKey { owner: get(row, 0)?, kind: read(row, 1, "job_keys.kind")?, key: get(row, 2)? };
                found.keys.push((key, job_id(row, 3)?));
            }
            RowKind::Parents => found.parents.push((job_id(row, 0)?, job_id(row, 1)?)),
            RowKind::Children => found.children.push((job_id(row, 0)?, job_id(row, 1)?)),
            RowKind::Resolutions => found.resolutions.push((job_id(row, 0)?, get(row, 1)?)),
            RowKind::LastNotes => {
                let epoch = read(row, 2, "notes.epoch")?;
                let last = LastNote { epoch, number: read(row, 3, "notes.number")? };
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
fn is_needed(part: RowKind, row: &impl RowCells) -> Result<bool, Fault> {
    match part {
        RowKind::Jobs => get(row, JobColumns::COUNT),
        // Continuing without them would exceed a limit, or overwrite existing data.
        RowKind::Limiters | RowKind::Started | RowKind::Unstarted | RowKind::Keys | RowKind::Requests => {
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// A live row in an existing lane.
fn read_live_of(row: &impl RowCells, lanes: &NamedLanes) -> Result<LiveRow, Fault> {
    let row = read_live(row, 0)?;
    name_in(lanes, row.lane)?;
    Ok(row)
}

fn read_session(row: &impl RowCells) -> Result<LoadedSession, Fault> {
    let place = SessionPlace {
        turn: read(row, 2, "sessions.turn")?,
        mode: read(row, 3, "sessions.mode")?,
        beat: read(row, 4, "sessions.beat")?,
        attention: get(row, 5)?,
    };
    Ok(LoadedSession {
        id: SessionId(get(row, 0)?),
        worker: get(row, 1)?,
        place,
        beaten_at: read(row, 6, "sessions.beaten_at")?,
        lost: get(row, 7)?,
        embedded: get(row, 8)?,
    })
}

pub(crate) fn read_limiter_row(row: &(impl RowCells + ?Sized)) -> Result<Option<LoadedLimiter>, Fault> {
    let Some(id) = read_limiter(Some(get(row, 0)?), "limiter_tallies.limiter")? else { return Ok(None) };
    let counts = LimiterCounts::read(1, |column| get(row, column))?;
    // Without the last start the rate is exceeded once at most, and the next start repairs the row.
    let last_at =
        skip_malformed(read(row, 1 + LimiterCounts::COLUMNS.len(), "limiter_paces.last_at"))?.flatten();
    Ok(Some(LoadedLimiter { id, counts, last_at }))
}

/// A row whose settings cannot be read carries the reason.
pub(crate) fn read_queue(row: &(impl RowCells + ?Sized)) -> Result<QueueRow, Fault> {
    queue_row(get(row, 0)?, read(row, 1, "queues.paused_at"), read_queue_settings(row))
}

fn read_queue_settings(
    row: &(impl RowCells + ?Sized),
) -> Result<(QueueSettings, Option<Readmission>), Fault> {
    let max_depth = read(row, 2, "queues.max_depth")?;
    let limits = read_limits(get(row, 3)?)?;
    Ok((QueueSettings { max_depth, limits }, read_readmission(get(row, 4)?)?))
}

pub(crate) fn read_checkpoint(row: &(impl RowCells + ?Sized), column: usize) -> Result<Checkpoint, Fault> {
    Checkpoint::stored(get::<String>(row, column)?)
        .map_err(|too_large| Fault::damaged("checkpoints.document", too_large))
}

fn read_request(row: &impl RowCells) -> Result<(RequestKey, RequestRow), Fault> {
    let answer = match read(row, 5, "requests.status")? {
        None => None,
        Some(status) => Some(StoredAnswer {
            status,
            location: get(row, 6)?,
            body: get::<Option<String>>(row, 7)?.unwrap_or_default(),
        }),
    };
    let request = RequestRow {
        fingerprint: read(row, 2, "requests.fingerprint")?,
        begun_at: read(row, 3, "requests.begun_at")?,
        seed: get::<i64>(row, 4)?.cast_unsigned(),
        answer,
    };
    Ok((RequestKey { token: get(row, 0)?, key: get(row, 1)? }, request))
}
