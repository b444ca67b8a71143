//! Roll-ups for charts: what executions did over time, by queue, job type or job.
//!
//! A caller with a limited scope sees the figures of the jobs in its scope that have figures of their own, also where
//! it asks by queue or job type: figures of a whole queue would show what others do.

use super::{UseCase, UseCaseError, UseCases};
use crate::notify::read;
use crate::series::{CURSOR, SeriesCursor};
use punctual_core::ports::{DocumentKind, StoreError};
use punctual_core::series::{ChunkNumber, OTHER_NAMES, SeriesCell, SeriesChunk, SeriesFamily, SeriesJob};
use punctual_core::time::{Timestamp, duration_micros};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Documents that are read at once.
const CHUNKS_AT_ONCE: usize = 50;
/// Series that are added up at once. Beyond this, those with the fewest executions so far are left out.
const SERIES_HELD_MAX: usize = 1_000;

/// What the executions of an answer are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesBy {
    /// One series of all executions.
    All,
    Queue,
    JobType,
    Job,
}

#[derive(Debug, Clone)]
pub struct SeriesQuery {
    pub by: SeriesBy,
    /// Only the queue, job type or job with this name.
    pub name: Option<String>,
    pub since: Timestamp,
    pub until: Timestamp,
    /// Whole minutes.
    pub step: Duration,
    /// Series to answer, those with the most executions.
    pub limit: usize,
}

/// The figures of some series, by step.
#[derive(Debug)]
pub struct SeriesFigures {
    /// When each step begins.
    pub times: Vec<Timestamp>,
    pub series: Vec<SeriesOfName>,
    /// Whether there are more series.
    pub is_cut: bool,
    /// Finished executions that are not counted yet.
    pub pending: u64,
}

/// The figures of one queue, job type or job.
#[derive(Debug)]
pub struct SeriesOfName {
    pub label: SeriesLabel,
    /// By step, without those in which nothing ended.
    pub cells: BTreeMap<usize, SeriesCell>,
}

/// What a series is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesLabel {
    All,
    Queue(String),
    JobType(String),
    Job {
        owner: String,
        name: String,
    },
    /// All names that have no figures of their own.
    Others,
}

impl SeriesLabel {
    /// The name of the queue, job type or job.
    pub fn name(&self) -> Option<&str> {
        match self {
            SeriesLabel::All | SeriesLabel::Others => None,
            SeriesLabel::Queue(name) | SeriesLabel::JobType(name) | SeriesLabel::Job { name, .. } => {
                Some(name)
            }
        }
    }

    pub fn owner(&self) -> Option<&str> {
        match self {
            SeriesLabel::Job { owner, .. } => Some(owner),
            _ => None,
        }
    }
}

impl SeriesOfName {
    pub fn executions(&self) -> u64 {
        executions(&self.cells)
    }
}

fn executions(cells: &BTreeMap<usize, SeriesCell>) -> u64 {
    cells.values().map(SeriesCell::executions).fold(0, u64::saturating_add)
}

impl UseCases {
    pub async fn series(&self, query: SeriesQuery) -> Result<SeriesFigures, UseCaseError> {
        self.permit(UseCase::ReadSeries)?;
        let by_job = query.by == SeriesBy::Job || self.is_limited();
        let family = match query.by {
            _ if by_job => SeriesFamily::Job,
            SeriesBy::JobType => SeriesFamily::JobType,
            SeriesBy::All | SeriesBy::Queue | SeriesBy::Job => SeriesFamily::Queue,
        };
        let step_us = duration_micros(query.step).max(1);
        let first = query.since.as_micros().div_euclid(step_us) * step_us;
        let count = (query.until.as_micros() - first + step_us - 1).div_euclid(step_us).max(0);
        let times = (0..count).map(|step| Timestamp::from_micros(first + step * step_us)).collect();

        let (mut sums, mut is_cut) = (BTreeMap::<SeriesLabel, BTreeMap<usize, SeriesCell>>::new(), false);
        let last = ChunkNumber::at(query.until);
        let begins_in = ChunkNumber::at(Timestamp::from_micros(first));
        let mut after = Some(begins_in.previous().document_name(family));
        while let Some(name) = after {
            let page = self.store().documents(DocumentKind::Series, Some(&name), CHUNKS_AT_ONCE).await?;
            after = page.next;
            for document in page.items {
                let number =
                    ChunkNumber::of_document(family, &document.name).filter(|number| *number <= last);
                let Some(number) = number else {
                    after = None;
                    break;
                };
                let Ok(chunk) = document.read::<SeriesChunk>() else { continue };
                for (key, minutes) in chunk.rows() {
                    let Some(label) = self.label(&query, family, key) else { continue };
                    let sum = sums.entry(label).or_default();
                    for (minute, cell) in minutes {
                        let time = number.time_of(*minute);
                        if time.as_micros() >= first && time < query.until {
                            let step = (time.as_micros() - first) / step_us;
                            sum.entry(usize::try_from(step).unwrap_or_default()).or_default().merge(cell);
                        }
                    }
                }
                if sums.len() > SERIES_HELD_MAX {
                    let largest = by_executions(std::mem::take(&mut sums)).into_iter();
                    sums.extend(largest.take(SERIES_HELD_MAX / 2).map(|series| (series.label, series.cells)));
                    is_cut = true;
                }
            }
        }
        sums.retain(|_, cells| !cells.is_empty());
        let mut series = by_executions(sums);
        is_cut |= series.len() > query.limit;
        series.truncate(query.limit);
        Ok(SeriesFigures { times, series, is_cut, pending: self.pending_executions().await? })
    }

    /// To which series of an answer a key belongs; `None` if it is not meant, or not for this caller.
    fn label(&self, query: &SeriesQuery, family: SeriesFamily, key: &str) -> Option<SeriesLabel> {
        let label = if family == SeriesFamily::Job && key != OTHER_NAMES {
            let SeriesJob { owner, queue, job_type, name } = SeriesJob::parse(key)?;
            if !self.caller.grant.scope.has_job(&owner, &queue, &job_type) {
                return None;
            }
            match query.by {
                SeriesBy::All => SeriesLabel::All,
                SeriesBy::Queue => SeriesLabel::Queue(queue),
                SeriesBy::JobType => SeriesLabel::JobType(job_type),
                SeriesBy::Job => SeriesLabel::Job { owner, name },
            }
        } else if key == OTHER_NAMES && self.is_limited() {
            return None;
        } else {
            match query.by {
                SeriesBy::All => SeriesLabel::All,
                _ if key == OTHER_NAMES => SeriesLabel::Others,
                SeriesBy::Queue => SeriesLabel::Queue(key.to_owned()),
                SeriesBy::JobType => SeriesLabel::JobType(key.to_owned()),
                SeriesBy::Job => return None,
            }
        };
        let is_meant = query.name.as_deref().is_none_or(|name| label.name() == Some(name));
        is_meant.then_some(label)
    }

    /// The executions that are not in any series yet; 0 for callers that may not see all of them.
    async fn pending_executions(&self) -> Result<u64, StoreError> {
        if self.is_limited() {
            return Ok(0);
        }
        let cursor = read::<SeriesCursor>(self.store(), CURSOR).await?;
        let ends_at = self.store().history_span().await?.ends_at;
        Ok(cursor.map_or(0, |cursor| ends_at.saturating_sub(cursor.value.history)))
    }
}

/// Those with the most executions first.
fn by_executions(sums: BTreeMap<SeriesLabel, BTreeMap<usize, SeriesCell>>) -> Vec<SeriesOfName> {
    let mut series: Vec<SeriesOfName> =
        sums.into_iter().map(|(label, cells)| SeriesOfName { label, cells }).collect();
    series.sort_by_key(|series| Reverse(series.executions()));
    series
}
