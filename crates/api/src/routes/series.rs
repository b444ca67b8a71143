//! Figures over time, for charts.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use axum::Json;
use punctual_client::{SeriesBody, SeriesPage, Span};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::series::{SeriesCell, SpanCounts};
use punctual_core::time::Timestamp;
use punctual_engine::{SeriesBy, SeriesOfName, SeriesQuery};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time before `until` if no `since` is given.
const SPAN_DEFAULT: Duration = Duration::from_secs(3 * 3_600);
/// The most steps if no `step` is given.
const STEPS_DEFAULT: u64 = 240;
/// The steps to choose from if none is given, in minutes.
const STEPS_MIN: [u64; 11] = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440];
const MINUTE: Duration = Duration::from_secs(60);

/// What the columns of an answer hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeriesMetric {
    Executions,
    Duration,
    Lateness,
    Waiting,
}

const METRICS: [(&str, SeriesMetric); 4] = [
    ("executions", SeriesMetric::Executions),
    ("duration", SeriesMetric::Duration),
    ("lateness", SeriesMetric::Lateness),
    ("waiting", SeriesMetric::Waiting),
];

const BY: [(&str, SeriesBy); 4] = [
    ("all", SeriesBy::All),
    ("queue", SeriesBy::Queue),
    ("job_type", SeriesBy::JobType),
    ("job", SeriesBy::Job),
];

pub async fn series(call: Call, mut query: QueryParams) -> Result<Json<SeriesPage>, ApiError> {
    let metric = chosen(&mut query, "metric", METRICS, 0);
    let by = chosen(&mut query, "by", BY, 1);
    let wanted = SeriesQuery {
        by: by.1,
        name: query.text("name"),
        limit: query.number("limit", 1..=limits::SERIES_SHOWN_MAX).unwrap_or(limits::SERIES_SHOWN_DEFAULT),
        ..times(&mut query, call.cases.now())
    };
    query.finish()?;
    let step_secs = wanted.step.as_secs();
    let figures = call.cases.series(wanted).await?;
    let count = figures.times.len();
    Ok(Json(SeriesPage {
        metric: metric.0.to_owned(),
        by: by.0.to_owned(),
        step_secs,
        times: figures.times,
        series: figures.series.iter().map(|series| shown(series, metric.1, count)).collect(),
        truncated: figures.is_cut,
        pending_executions: figures.pending,
    }))
}

/// A word of a list, or the one at this position if there is none.
fn chosen<T: Copy>(
    query: &mut QueryParams,
    name: &'static str,
    words: [(&'static str, T); 4],
    otherwise: usize,
) -> (&'static str, T) {
    let Some(text) = query.text(name) else { return words[otherwise] };
    let found = words.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
    found.unwrap_or_else(|| {
        query.refuse(name, &format!("must be {}", words.map(|(word, _)| word).join(", ")));
        words[otherwise]
    })
}

/// The time and the steps of a query; the other fields are not set yet.
fn times(query: &mut QueryParams, now: Timestamp) -> SeriesQuery {
    let until = query.time("until").unwrap_or(now);
    let since = query.time("since").unwrap_or(until.minus(SPAN_DEFAULT));
    if since >= until {
        query.refuse("since", "must be before until");
    }
    let minutes = until.since(since).as_secs().div_ceil(60);
    let step = match query.parsed::<Span>("step").map(Span::get) {
        Some(step) if step < MINUTE || step.subsec_nanos() > 0 || step.as_secs() % 60 > 0 => {
            query.refuse("step", "must be whole minutes, such as 5m");
            MINUTE
        }
        Some(step) => {
            // One more, because the first step begins at a multiple of its length.
            let least = minutes.div_ceil(limits::SERIES_POINTS_MAX as u64 - 1);
            if step.as_secs() / 60 < least {
                let most = limits::SERIES_POINTS_MAX;
                query.refuse(
                    "step",
                    &format!("must be at least {least}m: an answer has at most {most} steps"),
                );
            }
            step
        }
        None => {
            let fits = STEPS_MIN.into_iter().find(|step| minutes.div_ceil(*step) <= STEPS_DEFAULT);
            let days = minutes.div_ceil(STEPS_DEFAULT).div_ceil(1_440);
            MINUTE * u32::try_from(fits.unwrap_or(days * 1_440)).unwrap_or(u32::MAX)
        }
    };
    SeriesQuery { by: SeriesBy::All, name: None, since, until, step, limit: 0 }
}

fn shown(series: &SeriesOfName, metric: SeriesMetric, count: usize) -> SeriesBody {
    let nothing = SeriesCell::default();
    let cells: Vec<&SeriesCell> =
        (0..count).map(|step| series.cells.get(&step).unwrap_or(&nothing)).collect();
    let column = |of: &dyn Fn(&SeriesCell) -> Option<f64>| cells.iter().map(|cell| of(cell)).collect();
    let columns: BTreeMap<String, Vec<Option<f64>>> = match spans_of(metric) {
        None => Status::ALL
            .into_iter()
            .map(|status| (word_of(status), column(&|cell| Some(cell.ended(status) as f64))))
            .collect(),
        Some(spans) => [
            ("count".to_owned(), column(&|cell| Some(spans(cell).count() as f64))),
            ("mean_secs".to_owned(), column(&|cell| spans(cell).mean_secs())),
            ("p50_secs".to_owned(), column(&|cell| spans(cell).quantile_secs(0.5))),
            ("p95_secs".to_owned(), column(&|cell| spans(cell).quantile_secs(0.95))),
        ]
        .into(),
    };
    SeriesBody {
        name: series.label.name().map(str::to_owned),
        owner_id: series.label.owner().map(str::to_owned),
        executions: series.executions(),
        columns,
    }
}

fn spans_of(metric: SeriesMetric) -> Option<fn(&SeriesCell) -> &SpanCounts> {
    match metric {
        SeriesMetric::Executions => None,
        SeriesMetric::Duration => Some(|cell| &cell.duration),
        SeriesMetric::Lateness => Some(|cell| &cell.lateness),
        SeriesMetric::Waiting => Some(|cell| &cell.waiting),
    }
}

/// The name of the column of a status: its word, in lower case.
fn word_of(status: Status) -> String {
    let word = serde_json::to_value(status).unwrap_or_default();
    word.as_str().unwrap_or_default().to_ascii_lowercase()
}
