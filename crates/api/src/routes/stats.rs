//! Statistics: current work and completed work, for people and for Prometheus.

use crate::error::ApiError;
use crate::{Api, metrics, views};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use punctual_client::{CountersBody, JobsBody, LiveBody, StatsBody};
use punctual_core::cluster::Card;
use punctual_core::limits;
use punctual_core::ports::{Depth, StoreError};
use punctual_engine::CounterSnapshot;
use std::cmp::Reverse;

pub async fn stats(State(api): State<Api>) -> Result<Json<StatsBody>, ApiError> {
    Ok(Json(read(&api).await?))
}

pub async fn metrics(State(api): State<Api>) -> Result<impl IntoResponse, ApiError> {
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::exposition(&api).await?))
}

async fn read(api: &Api) -> Result<StatsBody, StoreError> {
    let overview = api.overview().await?;
    let (depths, sessions) = (&overview.depths, &overview.sessions);
    let jobs = api.store().job_counts().await?;
    let (counters, processes) = counted(api).await;
    Ok(StatsBody {
        now: api.engine.now(),
        live: LiveBody {
            lanes: depths.len() as u64,
            waiting: depths.iter().map(|depth| depth.waiting).sum(),
            queued: depths.iter().map(|depth| depth.queued).sum(),
            running: depths.iter().map(|depth| depth.running).sum(),
            sessions: sessions.len() as u64,
            slots: sessions.iter().map(|session| u64::from(session.slots_now())).sum(),
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
        counters,
        processes,
    })
}

/// The deepest lanes, if not all can be shown; in lane order.
fn fullest(depths: &[Depth]) -> Vec<&Depth> {
    let mut shown: Vec<(usize, &Depth)> = depths.iter().enumerate().collect();
    if shown.len() > limits::STATS_LANES_MAX {
        shown.sort_by_key(|(place, depth)| (Reverse(depth.waiting + depth.queued + depth.running), *place));
        shown.truncate(limits::STATS_LANES_MAX);
        shown.sort_by_key(|(place, _)| *place);
    }
    shown.into_iter().map(|(_, depth)| depth).collect()
}

/// The counters of all nodes of the cluster: this node's own and those that the others publish. Only this
/// node's where the others are unknown.
async fn counted(api: &Api) -> (CountersBody, u32) {
    let own = counters(api.engine.counters());
    let Some(Ok(nodes)) = api.engine.nodes().await else { return (own, 1) };
    let others = nodes.into_iter().filter(|node| !node.is_self).filter_map(|node| node.card);
    others.fold((own, 1), |(sum, processes), card| (added(sum, &card), processes + 1))
}

fn added(sum: CountersBody, card: &Card) -> CountersBody {
    let of = |name: &str| card.counters.get(name).copied().unwrap_or_default();
    CountersBody {
        submitted: sum.submitted + of("submitted"),
        fired: sum.fired + of("fired"),
        skipped: sum.skipped + of("skipped"),
        fire_conflicts: sum.fire_conflicts + of("fire_conflicts"),
        claimed: sum.claimed + of("claimed"),
        succeeded: sum.succeeded + of("succeeded"),
        failed: sum.failed + of("failed"),
        timed_out: sum.timed_out + of("timed_out"),
        cancelled: sum.cancelled + of("cancelled"),
        expired: sum.expired + of("expired"),
        lost: sum.lost + of("lost"),
        retried: sum.retried + of("retried"),
        given_back: sum.given_back + of("given_back"),
        stale_reports: sum.stale_reports + of("stale_reports"),
        sessions_lost: sum.sessions_lost + of("sessions_lost"),
        store_errors: sum.store_errors + of("store_errors"),
    }
}

fn counters(counted: CounterSnapshot) -> CountersBody {
    CountersBody {
        submitted: counted.submitted,
        fired: counted.fired,
        skipped: counted.skipped,
        fire_conflicts: counted.fire_conflicts,
        claimed: counted.claimed,
        succeeded: counted.succeeded,
        failed: counted.failed,
        timed_out: counted.timed_out,
        cancelled: counted.cancelled,
        expired: counted.expired,
        lost: counted.lost,
        retried: counted.retried,
        given_back: counted.given_back,
        stale_reports: counted.stale_reports,
        sessions_lost: counted.sessions_lost,
        store_errors: counted.store_errors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::Lane;
    use serde_json::json;

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

    #[test]
    fn every_counter_of_another_process_is_added_to_our_own() {
        let ours = serde_json::to_value(counters(CounterSnapshot::default())).unwrap();
        let names: Vec<String> = ours.as_object().unwrap().keys().cloned().collect();
        let said = names.iter().enumerate().map(|(place, name)| (name.clone(), place as u64 + 1)).collect();
        let sum = added(
            CountersBody { fired: 10, ..CountersBody::default() },
            &Card { counters: said, ..Card::default() },
        );
        let sum = serde_json::to_value(sum).unwrap();
        for (place, name) in names.iter().enumerate() {
            let own = if name == "fired" { 10 } else { 0 };
            assert_eq!(sum[name], json!(place as u64 + 1 + own), "{name}");
        }
        // The names match the engine's counters.
        let counted: Vec<&str> = CounterSnapshot::default().named().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| counted.contains(&name.as_str())), "{counted:?}");
    }
}
