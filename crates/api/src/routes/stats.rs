//! How much there is to do and how much was done, for people and for Prometheus.

use crate::error::ApiError;
use crate::{Api, metrics, views};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use punctual_client::{CountersBody, JobsBody, StatsBody};
use punctual_core::ports::StoreError;
use punctual_engine::CounterSnapshot;

pub async fn stats(State(api): State<Api>) -> Result<Json<StatsBody>, ApiError> {
    Ok(Json(read(&api).await?))
}

pub async fn metrics(State(api): State<Api>) -> Result<impl IntoResponse, ApiError> {
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::exposition(&api).await?))
}

async fn read(api: &Api) -> Result<StatsBody, StoreError> {
    let depths = api.store().depths().await?;
    let sessions = api.store().sessions().await?;
    let jobs = api.store().job_counts().await?;
    Ok(StatsBody {
        now: api.engine.now(),
        queues: depths.into_iter().map(views::lane).collect(),
        workers: sessions.into_iter().map(views::worker).collect(),
        jobs: JobsBody {
            active: jobs.active,
            paused: jobs.paused,
            completed: jobs.completed,
            failed: jobs.failed,
            cancelled: jobs.cancelled,
            dead_letters: jobs.dead_letters,
        },
        counters: counters(api.engine.counters()),
    })
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
