//! Roll-ups: what the executions of a queue, a job type or a job did in each minute. They are kept in documents of a
//! quarter of an hour each, with a bounded number of names. The module knows how executions are counted and added up;
//! not where documents are stored.

use crate::lifecycle::Status;
use crate::limits;
use crate::occurrence::Origin;
use crate::ports::RunTimes;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What executions are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesFamily {
    Queue,
    JobType,
    Job,
}

impl SeriesFamily {
    pub const ALL: [SeriesFamily; 3] = [SeriesFamily::Queue, SeriesFamily::JobType, SeriesFamily::Job];

    /// The word in the names of documents.
    pub fn word(self) -> &'static str {
        match self {
            SeriesFamily::Queue => "queue",
            SeriesFamily::JobType => "job_type",
            SeriesFamily::Job => "job",
        }
    }

    /// Under which key a run is counted.
    pub fn key(self, run: &RunTimes) -> String {
        match self {
            SeriesFamily::Queue => run.lane.queue().to_owned(),
            SeriesFamily::JobType => run.lane.job_type().to_owned(),
            SeriesFamily::Job => SeriesJob::of(run).text(),
        }
    }
}

/// Minutes of one document.
pub const CHUNK_MINUTES: i64 = 15;
const MINUTE_US: i64 = 60_000_000;

/// A quarter of an hour, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkNumber(i64);

impl ChunkNumber {
    pub fn at(time: Timestamp) -> Self {
        ChunkNumber(minute_of(time).div_euclid(CHUNK_MINUTES))
    }

    #[must_use]
    pub fn previous(self) -> Self {
        ChunkNumber(self.0 - 1)
    }

    /// The name of the document of a family. Names are in the order of time.
    pub fn document_name(self, family: SeriesFamily) -> String {
        format!("{}/{:012}", family.word(), self.0.max(0))
    }

    /// The reverse of [`Self::document_name`].
    pub fn of_document(family: SeriesFamily, name: &str) -> Option<Self> {
        name.strip_prefix(family.word())?.strip_prefix('/')?.parse().ok().map(ChunkNumber)
    }

    /// The time at which a minute of it begins.
    pub fn time_of(self, minute: u8) -> Timestamp {
        Timestamp::from_micros((self.0 * CHUNK_MINUTES + i64::from(minute)).saturating_mul(MINUTE_US))
    }

    fn minute(time: Timestamp) -> u8 {
        u8::try_from(minute_of(time).rem_euclid(CHUNK_MINUTES)).unwrap_or_default()
    }
}

fn minute_of(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(MINUTE_US)
}

/// The owner, lane and name of a job. Jobs that have them in common are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesJob {
    pub owner: String,
    pub queue: String,
    pub job_type: String,
    pub name: String,
}

/// Names have no control characters.
const BETWEEN: char = '\u{1f}';

impl SeriesJob {
    pub fn of(run: &RunTimes) -> Self {
        SeriesJob {
            owner: run.owner.clone(),
            queue: run.lane.queue().to_owned(),
            job_type: run.lane.job_type().to_owned(),
            name: run.job_name.clone(),
        }
    }

    pub fn text(&self) -> String {
        [&*self.owner, &*self.queue, &*self.job_type, &*self.name].join(&BETWEEN.to_string())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(BETWEEN).map(str::to_owned);
        let key = SeriesJob {
            owner: parts.next()?,
            queue: parts.next()?,
            job_type: parts.next()?,
            name: parts.next()?,
        };
        parts.next().is_none().then_some(key)
    }
}

/// Upper bounds in microseconds: from 1 ms to 10 h.
const BOUNDS_US: &[u64] = &[
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    1_200_000_000,
    3_600_000_000,
    7_200_000_000,
    18_000_000_000,
    36_000_000_000,
];

/// How long something took, counted in buckets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpanCounts {
    sum_us: u64,
    /// By bucket, without those that are empty.
    counts: BTreeMap<usize, u64>,
}

impl SpanCounts {
    pub fn add(&mut self, span: Duration) {
        let us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.sum_us = self.sum_us.saturating_add(us);
        *self.counts.entry(BOUNDS_US.partition_point(|bound| *bound < us)).or_default() += 1;
    }

    fn merge(&mut self, other: &SpanCounts) {
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        for (bucket, count) in &other.counts {
            let sum = self.counts.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    pub fn count(&self) -> u64 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// `None` if nothing was counted.
    pub fn mean_secs(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_us as f64 / count as f64 / 1e6)
    }

    /// The time that this share of the spans did not exceed, estimated within a bucket.
    pub fn quantile_secs(&self, share: f64) -> Option<f64> {
        let rank = share * self.count() as f64;
        let mut below = 0;
        for (bucket, count) in &self.counts {
            if (below + count) as f64 >= rank {
                let low =
                    bucket.checked_sub(1).and_then(|bucket| BOUNDS_US.get(bucket)).copied().unwrap_or(0);
                let high = BOUNDS_US.get(*bucket).copied().unwrap_or(low);
                let within = (rank - below as f64).max(0.0) / *count as f64;
                return Some((low as f64 + (high - low) as f64 * within) / 1e6);
            }
            below += count;
        }
        None
    }

    /// The sum, then each bucket with its count.
    fn numbers(&self) -> Vec<u64> {
        if self.counts.is_empty() {
            return vec![];
        }
        let counts = self.counts.iter().flat_map(|(bucket, count)| [*bucket as u64, *count]);
        std::iter::once(self.sum_us).chain(counts).collect()
    }

    fn of_numbers(numbers: &[u64]) -> Self {
        let Some((sum_us, counts)) = numbers.split_first() else { return SpanCounts::default() };
        let counts = counts.as_chunks::<2>().0.iter().filter(|[_, count]| *count > 0);
        let bucket =
            |bucket: u64| usize::try_from(bucket).map_or(BOUNDS_US.len(), |it| it.min(BOUNDS_US.len()));
        SpanCounts { sum_us: *sum_us, counts: counts.map(|[at, count]| (bucket(*at), *count)).collect() }
    }
}

/// What ended within some time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "CellNumbers", into = "CellNumbers")]
pub struct SeriesCell {
    /// In the order of [`Status::ALL`].
    ended: [u64; Status::ALL.len()],
    /// From the start of the handler to its end.
    pub duration: SpanCounts,
    /// From the scheduled time to the start of the first attempt, of occurrences that a schedule has caused.
    pub lateness: SpanCounts,
    /// From the time at which an attempt could start to its start.
    pub waiting: SpanCounts,
}

impl SeriesCell {
    pub fn add(&mut self, run: &RunTimes) {
        self.ended[index_of(run.status)] += 1;
        let Some(started_at) = run.started_at else { return };
        self.waiting.add(started_at.since(run.available_at));
        // A user chose when the others run: a backfill or a repeated run has a scheduled time long past.
        if run.attempt == 1 && run.origin == Origin::Schedule {
            self.lateness.add(started_at.since(run.scheduled_time));
        }
        // The end of a lost run is the time at which its loss was noticed.
        if run.status != Status::Lost {
            self.duration.add(run.completed_at.since(started_at));
        }
    }

    pub fn merge(&mut self, other: &SeriesCell) {
        for (sum, count) in self.ended.iter_mut().zip(other.ended) {
            *sum = sum.saturating_add(count);
        }
        self.duration.merge(&other.duration);
        self.lateness.merge(&other.lateness);
        self.waiting.merge(&other.waiting);
    }

    pub fn ended(&self, status: Status) -> u64 {
        self.ended[index_of(status)]
    }

    /// All executions, whatever their outcome.
    pub fn executions(&self) -> u64 {
        self.ended.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

fn index_of(status: Status) -> usize {
    Status::ALL.iter().position(|one| *one == status).unwrap_or_default()
}

/// A cell as it is stored: executions by status without trailing zeros, then the spans.
type CellNumbers = (Vec<u64>, Vec<u64>, Vec<u64>, Vec<u64>);

impl From<SeriesCell> for CellNumbers {
    fn from(cell: SeriesCell) -> Self {
        let used = cell.ended.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let SeriesCell { ended, duration, lateness, waiting } = cell;
        (ended[..used].to_vec(), duration.numbers(), lateness.numbers(), waiting.numbers())
    }
}

impl From<CellNumbers> for SeriesCell {
    fn from((counts, duration, lateness, waiting): CellNumbers) -> Self {
        let mut ended = [0; Status::ALL.len()];
        ended.iter_mut().zip(counts).for_each(|(place, count)| *place = count);
        SeriesCell {
            ended,
            duration: SpanCounts::of_numbers(&duration),
            lateness: SpanCounts::of_numbers(&lateness),
            waiting: SpanCounts::of_numbers(&waiting),
        }
    }
}

/// The key of all names that have no figures of their own.
pub const OTHER_NAMES: &str = "";

/// The figures of one family in a quarter of an hour: by key and minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SeriesChunk(BTreeMap<String, BTreeMap<u8, SeriesCell>>);

impl SeriesChunk {
    pub fn rows(&self) -> impl Iterator<Item = (&str, &BTreeMap<u8, SeriesCell>)> {
        self.0.iter().map(|(key, minutes)| (key.as_str(), minutes))
    }

    pub fn add(&mut self, key: String, run: &RunTimes) {
        let minute = ChunkNumber::minute(run.completed_at);
        self.0.entry(key).or_default().entry(minute).or_default().add(run);
    }

    /// Whether it has so many names that those with the fewest executions are to be added up. Twice as many are
    /// counted as are kept, so that a name that appears late can still become one of those with the most.
    pub fn is_too_wide(&self, most: usize) -> bool {
        self.0.len() > 2 * most + 1
    }

    /// Keeps this many names, those with the most executions, and those that `is_named` selects. The others are
    /// added up.
    pub fn fold(&mut self, most: usize, is_named: impl Fn(&str) -> bool) {
        let executions =
            |minutes: &BTreeMap<u8, SeriesCell>| minutes.values().map(SeriesCell::executions).sum::<u64>();
        let mut by_size: Vec<(u64, String)> = self
            .0
            .iter()
            .filter(|(key, _)| *key != OTHER_NAMES && !is_named(key))
            .map(|(key, minutes)| (executions(minutes), key.clone()))
            .collect();
        by_size.sort_unstable_by_key(|(count, _)| Reverse(*count));
        for (_, key) in by_size.into_iter().skip(most) {
            let minutes = self.0.remove(&key).unwrap_or_default();
            let other = self.0.entry(OTHER_NAMES.to_owned()).or_default();
            for (minute, cell) in minutes {
                other.entry(minute).or_default().merge(&cell);
            }
        }
    }

    /// The body of its document, with fewer names if it would be too large.
    pub fn body(&mut self) -> String {
        loop {
            let body = serde_json::to_string(self).unwrap_or_default();
            if body.len() <= limits::DOCUMENT_BYTES_MAX || self.0.len() <= 1 {
                return body;
            }
            self.fold(self.0.len() / 2, |_| false);
        }
    }
}

/// What some jobs did since they were first counted, for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobTotals(BTreeMap<String, JobTotal>);

/// What the jobs of one owner with one name did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobTotal {
    /// In the order of [`Status::ALL`]; shorter if statuses were added since.
    ended: Vec<u64>,
    /// How long all of them ran.
    pub ran_us: u64,
    /// When the latest one that succeeded has ended.
    pub last_success: Option<Timestamp>,
}

impl JobTotal {
    pub fn ended(&self, status: Status) -> u64 {
        self.ended.get(index_of(status)).copied().unwrap_or(0)
    }

    fn executions(&self) -> u64 {
        self.ended.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// How many jobs have metrics of their own.
#[derive(Debug, Clone, Default)]
pub struct JobMetricsBound {
    /// Those with the most executions.
    pub most: usize,
    /// And those with these names.
    pub named: BTreeSet<String>,
}

impl JobMetricsBound {
    pub fn is_none(&self) -> bool {
        self.most == 0 && self.named.is_empty()
    }
}

impl JobTotals {
    /// The name of its document.
    pub const DOCUMENT: &'static str = "totals";

    pub fn add(&mut self, run: &RunTimes, bound: &JobMetricsBound) {
        if bound.most == 0 && !bound.named.contains(&run.job_name) {
            return;
        }
        let total = self.0.entry(format!("{}{BETWEEN}{}", run.owner, run.job_name)).or_default();
        total.ended.resize(Status::ALL.len(), 0);
        total.ended[index_of(run.status)] += 1;
        if run.status == Status::Succeeded {
            total.last_success = total.last_success.max(Some(run.completed_at));
        }
        if let Some(started_at) = run.started_at.filter(|_| run.status != Status::Lost) {
            let ran = u64::try_from(run.completed_at.since(started_at).as_micros()).unwrap_or(u64::MAX);
            total.ran_us = total.ran_us.saturating_add(ran);
        }
        // Twice as many are counted as are shown, so that a new name can become one of the largest.
        if self.0.len() > 2 * bound.most + bound.named.len() + 1 {
            self.keep(bound);
        }
    }

    /// Keeps the names with the most executions, and those that are named.
    pub fn keep(&mut self, bound: &JobMetricsBound) {
        let is_named =
            |key: &str| key.split_once(BETWEEN).is_some_and(|(_, name)| bound.named.contains(name));
        let mut by_size: Vec<(u64, String)> = self
            .0
            .iter()
            .filter(|(key, _)| !is_named(key))
            .map(|(key, total)| (total.executions(), key.clone()))
            .collect();
        by_size.sort_unstable_by_key(|(count, _)| Reverse(*count));
        for (_, key) in by_size.into_iter().skip(bound.most) {
            self.0.remove(&key);
        }
        // Many owners may have jobs with a name.
        while self.0.len() > bound.most + limits::METRIC_NAMED_JOBS_MAX {
            self.0.pop_last();
        }
    }

    /// Owner, name and figures.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, &JobTotal)> {
        self.0.iter().filter_map(|(key, total)| {
            let (owner, name) = key.split_once(BETWEEN)?;
            Some((owner, name, total))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Lane;

    fn second(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_800_000_000 + seconds) * 1_000_000)
    }

    fn run(name: &str, status: Status, ran_ms: i64) -> RunTimes {
        RunTimes {
            owner: "ann".to_owned(),
            job_name: name.to_owned(),
            lane: Lane::new("images", "resize"),
            status,
            origin: Origin::Schedule,
            attempt: 1,
            scheduled_time: second(0),
            available_at: second(1),
            started_at: Some(second(2)),
            completed_at: second(2).shifted(ran_ms * 1_000),
        }
    }

    #[test]
    fn a_cell_is_stored_compactly_and_read_back() {
        let mut cell = SeriesCell::default();
        cell.add(&run("a", Status::Succeeded, 3));
        cell.add(&run("a", Status::Failed, 400));
        cell.add(&RunTimes { started_at: None, ..run("a", Status::Skipped, 0) });
        let text = serde_json::to_string(&cell).unwrap();
        assert_eq!(text, "[[1,1,0,0,0,1],[403000,2,1,8,1],[4000000,10,2],[2000000,9,2]]");
        assert_eq!(serde_json::from_str::<SeriesCell>(&text).unwrap(), cell);
        assert_eq!((cell.executions(), cell.ended(Status::Skipped), cell.duration.count()), (3, 1, 2));
    }

    #[test]
    fn only_runs_of_schedules_are_late() {
        let mut cell = SeriesCell::default();
        for origin in [Origin::Schedule, Origin::Trigger, Origin::Backfill] {
            cell.add(&RunTimes { origin, ..run("a", Status::Succeeded, 3) });
        }
        let retried = RunTimes { attempt: 2, ..run("a", Status::Succeeded, 3) };
        cell.add(&retried);
        assert_eq!((cell.lateness.count(), cell.waiting.count(), cell.duration.count()), (1, 4, 4));
    }

    #[test]
    fn quantiles_lie_within_the_bucket_of_their_rank() {
        let mut spans = SpanCounts::default();
        assert_eq!((spans.mean_secs(), spans.quantile_secs(0.5)), (None, None));
        for ms in [3, 3, 3, 3, 3, 3, 3, 3, 3, 1_500] {
            spans.add(Duration::from_millis(ms));
        }
        let median = spans.quantile_secs(0.5).unwrap();
        assert!((0.002..=0.005).contains(&median), "{median}");
        let high = spans.quantile_secs(0.95).unwrap();
        assert!((1.0..=2.0).contains(&high), "{high}");
        assert_eq!(spans.mean_secs(), Some(0.152_7));
        spans.add(Duration::from_secs(1_000_000));
        assert_eq!(spans.quantile_secs(1.0), Some(36_000.0), "no more is known than the highest bound");
    }

    #[test]
    fn names_with_the_fewest_executions_are_added_up_and_named_ones_stay() {
        let mut chunk = SeriesChunk::default();
        for (name, times) in [("rare", 1), ("named", 1), ("often", 5), ("most", 9)] {
            for _ in 0..times {
                chunk.add(name.to_owned(), &run(name, Status::Succeeded, 1));
            }
        }
        assert!(chunk.is_too_wide(1) && !chunk.is_too_wide(2));
        chunk.fold(1, |key| key == "named");
        let counts: Vec<(&str, u64)> = chunk
            .rows()
            .map(|(key, minutes)| (key, minutes.values().map(SeriesCell::executions).sum()))
            .collect();
        assert_eq!(counts, [(OTHER_NAMES, 6), ("most", 9), ("named", 1)]);
    }

    #[test]
    fn a_body_is_never_larger_than_a_document() {
        let mut chunk = SeriesChunk::default();
        for number in 0..40 {
            let name = format!("{number:040000}");
            chunk.add(name.clone(), &run(&name, Status::Succeeded, 1));
        }
        let body = chunk.body();
        assert!(body.len() <= limits::DOCUMENT_BYTES_MAX, "{}", body.len());
        let cells = chunk.rows().flat_map(|(_, minutes)| minutes.values());
        assert_eq!(cells.map(SeriesCell::executions).sum::<u64>(), 40);
    }

    #[test]
    fn documents_are_named_in_the_order_of_time() {
        let (early, late) = (ChunkNumber::at(second(0)), ChunkNumber::at(second(900)));
        assert!(early.document_name(SeriesFamily::Job) < late.document_name(SeriesFamily::Job));
        let name = late.document_name(SeriesFamily::JobType);
        assert_eq!(ChunkNumber::of_document(SeriesFamily::JobType, &name), Some(late));
        assert_eq!(ChunkNumber::of_document(SeriesFamily::Job, &name), None);
        assert_eq!(
            late.time_of(ChunkNumber::minute(second(905))),
            second(900),
            "1,800,000,000 is a multiple of 900"
        );
    }

    #[test]
    fn the_key_of_a_job_is_read_back() {
        let key = SeriesJob::of(&run("nightly backup", Status::Succeeded, 1));
        assert_eq!(SeriesJob::parse(&key.text()), Some(key));
        assert_eq!(SeriesJob::parse("images"), None);
    }

    #[test]
    fn totals_keep_the_jobs_that_run_most_and_those_that_are_named() {
        let bound = JobMetricsBound { most: 1, named: ["rare".to_owned()].into() };
        let mut totals = JobTotals::default();
        for name in ["often", "rare", "often", "once", "twice", "often", "twice"] {
            totals.add(&run(name, Status::Succeeded, 500), &bound);
        }
        totals.add(&run("often", Status::Failed, 500), &bound);
        totals.keep(&bound);
        let names: Vec<&str> = totals.rows().map(|(_, name, _)| name).collect();
        assert_eq!(names, ["often", "rare"]);
        let (owner, _, often) = totals.rows().next().unwrap();
        assert_eq!((owner, often.ended(Status::Succeeded), often.ended(Status::Failed)), ("ann", 3, 1));
        assert_eq!((often.ran_us, often.last_success), (2_000_000, Some(second(2).shifted(500_000))));
    }
}
