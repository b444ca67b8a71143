//! Statistics: current work and completed work, for people and for Prometheus.

use crate::auth::Call;
use crate::error::ApiError;
use crate::routes::pause;
use crate::{metrics, views};
use axum::Json;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::IntoResponse;
use punctual_client::{CountersBody, JobsBody, LiveBody, LookedAtBody, StatsBody};
use punctual_core::limits;
use punctual_core::ports::Depth;
use punctual_engine::{CounterSnapshot, LookedAt, Stats};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, MapDeserializer};
use std::cmp::Reverse;

pub async fn stats(call: Call) -> Result<Json<StatsBody>, ApiError> {
    let pause = call.cases.cluster_pause().await?;
    let pause = pause.map(|pause| pause::body(Some(pause)));
    Ok(Json(StatsBody { pause, ..shown(call.cases.stats().await?) }))
}

pub async fn metrics(call: Call, headers: HeaderMap) -> Result<impl IntoResponse, ApiError> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let (format, text) = metrics::exposition(&call, accept).await?;
    Ok(([(CONTENT_TYPE, format.content_type())], text))
}

fn shown(stats: Stats) -> StatsBody {
    let Stats { now, overview, jobs, counters: counted, processes, looked_at } = stats;
    let (depths, sessions) = (&overview.depths, &overview.sessions);
    StatsBody {
        now,
        live: LiveBody {
            lanes: depths.len() as u64,
            waiting: total(depths.iter().map(|depth| depth.waiting)),
            queued: total(depths.iter().map(|depth| depth.queued)),
            running: total(depths.iter().map(|depth| depth.running)),
            sessions: sessions.len() as u64,
            slots: total(sessions.iter().map(|session| u64::from(session.slots_now()))),
        },
        truncated: depths.len() > limits::STATS_LANES_MAX || sessions.len() > limits::STATS_WORKERS_MAX,
        queues: fullest(depths).into_iter().map(views::lane).collect(),
        workers: sessions.iter().take(limits::STATS_WORKERS_MAX).map(views::worker).collect(),
        jobs: JobsBody {
            active: jobs.active,
            paused: jobs.paused,
            completed: jobs.completed,
            failed: jobs.failed,
            cancelled: jobs.cancelled,
            dead_letters: jobs.dead_letters,
        },
        counters: counters(counted),
        processes,
        pause: None,
        looked_at: looked_at.map(|LookedAt { jobs, executions, is_all }| LookedAtBody {
            jobs,
            executions,
            complete: is_all,
        }),
    }
}

/// The sum, as far as the type goes: counters of damaged rows may be of any size.
fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// The deepest lanes, if not all can be shown; in lane order.
fn fullest(depths: &[Depth]) -> Vec<&Depth> {
    let mut shown: Vec<(usize, &Depth)> = depths.iter().enumerate().collect();
    if shown.len() > limits::STATS_LANES_MAX {
        shown.sort_by_key(|(place, depth)| {
            (Reverse(total([depth.waiting, depth.queued, depth.running])), *place)
        });
        shown.truncate(limits::STATS_LANES_MAX);
        shown.sort_by_key(|(place, _)| *place);
    }
    shown.into_iter().map(|(_, depth)| depth).collect()
}

/// The counters that the API shows, by their names.
fn counters(counted: CounterSnapshot) -> CountersBody {
    let named = MapDeserializer::<_, ValueError>::new(counted.named());
    CountersBody::deserialize(named).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::Lane;
    use std::collections::BTreeMap;

    #[test]
    fn every_counter_that_is_shown_is_counted() {
        let none = CounterSnapshot::default();
        let named: BTreeMap<String, u64> =
            none.named().zip(1..).map(|((name, _), count)| (name.to_owned(), count)).collect();
        let body = counters(none.plus(&named));
        let shown: BTreeMap<String, u64> =
            serde_json::from_value(serde_json::to_value(body).unwrap()).unwrap();
        assert!(!shown.is_empty());
        for (name, count) in shown {
            assert_eq!(named.get(&name), Some(&count), "{name}");
        }
    }

    #[test]
    fn counts_whose_sum_is_too_large_stay_the_largest_number() {
        assert_eq!(total([u64::MAX, 1, 7]), u64::MAX);
        assert_eq!(total([]), 0);
    }

    #[test]
    fn of_many_lanes_those_that_hold_most_are_shown_in_their_order() {
        let depth = |number: usize, queued: u64| Depth {
            lane: Lane::new(format!("queue {number}"), "noop"),
            waiting: 0,
            queued,
            running: 0,
            oldest_queued: None,
        };
        let mut depths: Vec<Depth> = (0..limits::STATS_LANES_MAX + 5).map(|n| depth(n, 1)).collect();
        assert_eq!(fullest(&depths[..3]).len(), 3);
        depths[limits::STATS_LANES_MAX + 3].queued = 9;
        let shown = fullest(&depths);
        assert_eq!(shown.len(), limits::STATS_LANES_MAX);
        assert_eq!((shown[0].queued, shown.last().unwrap().queued), (1, 9));
    }
}
