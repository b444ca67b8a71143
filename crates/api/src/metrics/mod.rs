//! Prometheus metrics in its text format, and in OpenMetrics where there are exemplars. [`catalog`] lists the metrics; this module writes them. Every value
//! comes from a counter that is maintained anyway: a scrape costs the same whether ten jobs wait or ten
//! million.
//!
//! Written by hand, because the library of the Prometheus project writes only OpenMetrics, which names
//! counters differently: neither `promtool check metrics` nor older scrapers read that.

mod catalog;
mod lanes;
mod traffic;

pub use lanes::KnownLanes;
pub use traffic::{LimitKind, Traffic, count as count_traffic};

use crate::Api;
use crate::auth::Call;
use crate::error::ApiError;
use lanes::LaneFigures;
use punctual_core::histogram::HistogramSnapshot;
use punctual_core::limits;
use punctual_core::ports::{JobCounts, SpanFigures, StoreError, StoreFigures, StoreHealth};
use punctual_core::series::JobTotals;
use punctual_core::time::{Timestamp, duration_micros};
use punctual_engine::{
    Capacity, ClusterSnapshot, CounterSnapshot, EventsState, Exemplar, Exemplars, LimitedQueue,
    MeasureSnapshot, Readings, ReadyQueueState, UseCaseError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use traffic::TrafficSnapshot;

/// The syntax of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    Text,
    /// The only one with exemplars.
    OpenMetrics,
}

impl MetricsFormat {
    pub const fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// OpenMetrics if the client accepts it and this node records spans. Otherwise it has no advantage, and every scraper
    /// reads the text format.
    fn chosen(accept: Option<&str>, snapshot: Option<&MetricsSnapshot>) -> Self {
        let is_accepted = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        let has_exemplars = snapshot.is_some_and(|snapshot| snapshot.spans.is_some());
        if is_accepted && has_exemplars { MetricsFormat::OpenMetrics } else { MetricsFormat::Text }
    }
}

/// All measurements at one moment.
struct MetricsSnapshot {
    started_at_us: i64,
    clock_offset_us: i64,
    clock_offset_max_us: i64,
    overdue_us: i64,
    is_retention_paused: bool,
    cluster: ClusterSnapshot,
    ready_queue: Option<ReadyQueueState>,
    events: Option<EventsState>,
    jobs: JobCounts,
    lanes: Vec<LaneFigures>,
    worker_sessions: u64,
    worker_slots: u64,
    workers_refusing: u64,
    /// By queue, for queues that have their own label values.
    desired_slots: BTreeMap<String, u64>,
    /// The use of queues with a concurrency limit, up to a bounded number of them.
    limited: Vec<LimitedQueue>,
    counters: CounterSnapshot,
    measures: MeasureSnapshot,
    spans: Option<SpanFigures>,
    exemplars: Exemplars,
    store: StoreFigures,
    job_totals: JobTotals,
    traffic: TrafficSnapshot,
}

impl MetricsSnapshot {
    fn of(readings: Readings, api: &Api, now: Timestamp) -> Self {
        let Readings {
            overview,
            limited,
            node,
            overdue,
            is_retention_paused,
            jobs,
            counters,
            measures,
            spans,
            exemplars,
            store,
            job_totals,
        } = readings;
        let capacity = Capacity::of(overview.clone());
        let sessions = &overview.sessions;
        let lanes = api.lanes.choose(&overview.depths, now);
        MetricsSnapshot {
            desired_slots: desired_slots(&lanes, &capacity),
            limited,
            started_at_us: api.started_at.as_micros(),
            clock_offset_us: node.clock_offset_us,
            clock_offset_max_us: duration_micros(node.clock_offset_max),
            overdue_us: duration_micros(overdue),
            is_retention_paused,
            cluster: node.cluster,
            ready_queue: node.ready_queue,
            events: node.events,
            jobs,
            lanes,
            worker_sessions: sessions.len() as u64,
            worker_slots: sessions.iter().map(|session| u64::from(session.slots_now())).sum(),
            workers_refusing: sessions.iter().filter(|session| !session.refuses().is_empty()).count() as u64,
            counters,
            measures,
            spans,
            exemplars,
            store,
            job_totals,
            traffic: api.traffic.snapshot(),
        }
    }
}

fn desired_slots(lanes: &[LaneFigures], capacity: &Capacity) -> BTreeMap<String, u64> {
    let queues = lanes.iter().filter(|lane| lane.queue != lanes::OTHERS).map(|lane| lane.queue.as_str());
    let desired = |queue| capacity.load(queue).desired_slots(limits::TARGET_WAIT_DEFAULT);
    queues.collect::<BTreeSet<_>>().into_iter().map(|queue| (queue.to_owned(), desired(queue))).collect()
}

/// All current metrics. For a store that is damaged and cannot be read, the metrics that need no reading:
/// alerts on damage must not depend on the damaged data.
pub async fn exposition(call: &Call, accept: Option<&str>) -> Result<(MetricsFormat, String), ApiError> {
    let snapshot = match call.cases.readings().await {
        Ok(readings) => Some(MetricsSnapshot::of(readings, &call.api, call.cases.now())),
        Err(UseCaseError::StoreFailed(StoreError::Broken(_))) => None,
        Err(error) => return Err(error.into()),
    };
    let format = MetricsFormat::chosen(accept, snapshot.as_ref());
    Ok((format, written(snapshot.as_ref(), &call.cases.store_health()?, format)))
}

fn written(snapshot: Option<&MetricsSnapshot>, health: &StoreHealth, format: MetricsFormat) -> String {
    let mut text = String::with_capacity(32 * 1_024);
    for family in catalog::FAMILIES {
        if snapshot.is_none() && matches!(family.read, SampleSource::Snapshot(_)) {
            continue;
        }
        let kind = family.kind.word();
        let name = match format {
            MetricsFormat::Text => family.name,
            // There, the suffix belongs to the samples.
            MetricsFormat::OpenMetrics => family.name.strip_suffix("_total").unwrap_or(family.name),
        };
        let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", family.help);
        let mut samples = Samples { family, text: &mut text, format };
        match (&family.read, snapshot) {
            (SampleSource::Snapshot(read), Some(snapshot)) => read(snapshot, &mut samples),
            (SampleSource::Snapshot(_), None) => {}
            (SampleSource::Health(read), _) => read(health, &mut samples),
        }
    }
    if format == MetricsFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// Where the values of a family come from.
enum SampleSource {
    Snapshot(fn(&MetricsSnapshot, &mut Samples<'_>)),
    /// Without a database query.
    Health(fn(&StoreHealth, &mut Samples<'_>)),
}

/// One metric with all its label values.
struct MetricFamily {
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
    read: SampleSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    const fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Collects the values of one family.
struct Samples<'a> {
    family: &'a MetricFamily,
    text: &'a mut String,
    format: MetricsFormat,
}

impl Samples<'_> {
    /// A value with the family's labels, in their order.
    fn value(&mut self, labels: &[&str], value: u64) {
        self.line("", labels, None, value as f64);
    }

    /// A value that is kept in microseconds and shown in seconds.
    fn seconds(&mut self, labels: &[&str], micros: i64) {
        self.line("", labels, None, micros as f64 / 1e6);
    }

    /// A histogram. Families in seconds keep theirs in microseconds.
    fn histogram(&mut self, labels: &[&str], snapshot: &HistogramSnapshot) {
        self.histogram_with(labels, snapshot, |_| None);
    }

    /// The same with an example for each bucket, where the format has a place for it.
    fn histogram_with(
        &mut self,
        labels: &[&str],
        snapshot: &HistogramSnapshot,
        exemplar: impl Fn(usize) -> Option<Exemplar>,
    ) {
        let scale = if self.family.name.ends_with("_seconds") { 1e6 } else { 1.0 };
        let mut below = 0;
        for (bucket, (bound, count)) in snapshot.bounds.iter().zip(&snapshot.counts).enumerate() {
            below += count;
            let bound = (*bound as f64 / scale).to_string();
            self.line("_bucket", labels, Some(&bound), below as f64);
            self.exemplar(exemplar(bucket));
        }
        let count = snapshot.count() as f64;
        self.line("_bucket", labels, Some("+Inf"), count);
        self.exemplar(exemplar(snapshot.bounds.len()));
        self.line("_sum", labels, None, snapshot.sum as f64 / scale);
        self.line("_count", labels, None, count);
    }

    /// Adds an exemplar to the last line.
    fn exemplar(&mut self, exemplar: Option<Exemplar>) {
        let (MetricsFormat::OpenMetrics, Some(exemplar)) = (self.format, exemplar) else { return };
        let (value, at) = (exemplar.duration.as_secs_f64(), exemplar.at.as_micros() as f64 / 1e6);
        self.text.truncate(self.text.trim_end().len());
        let _ = writeln!(self.text, " # {{trace_id=\"{}\"}} {value} {at}", exemplar.trace);
    }

    fn line(&mut self, suffix: &str, labels: &[&str], below: Option<&str>, value: f64) {
        debug_assert_eq!(labels.len(), self.family.labels.len(), "{}", self.family.name);
        let _ = write!(self.text, "{}{suffix}", self.family.name);
        let names = self.family.labels.iter().copied().zip(labels.iter().copied());
        for (place, (name, value)) in names.chain(below.map(|below| ("le", below))).enumerate() {
            let _ = write!(self.text, "{}{name}=\"{}\"", if place == 0 { '{' } else { ',' }, escaped(value));
        }
        if !labels.is_empty() || below.is_some() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
