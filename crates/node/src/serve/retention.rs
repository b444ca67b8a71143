//! The settings of a scheduler: how long finished jobs, history, figures for charts and the audit log are retained, how far its clock may be
//! off, and how long it may be silent.

use punctual_config::args::RetentionTime;
use punctual_config::{CoordinationSettings, SchedulerSettings};
use punctual_core::limits;
use punctual_core::recurrence::tzdb_version;
use punctual_core::series::JobMetricsBound;
use punctual_engine::{EngineConfig, SeriesConfig};
use std::collections::BTreeSet;
use std::time::Duration;

pub fn config(settings: &SchedulerSettings, coordination: &CoordinationSettings) -> EngineConfig {
    EngineConfig {
        jobs_kept: match settings.keep_finished_jobs {
            RetentionTime::For(time) => Some(time),
            RetentionTime::Forever => None,
        },
        history_kept: match settings.keep_history {
            RetentionTime::For(time) => time,
            // Longer than any possible time.
            RetentionTime::Forever => Duration::MAX,
        },
        audit_kept: match settings.keep_audit {
            RetentionTime::For(time) => Some(time),
            RetentionTime::Forever => None,
        },
        series: Some(series(settings)),
        clock_offset_max: settings.clock_offset_max.get(),
        member_ttl: coordination.ttl.get(),
        tzdb_version: Some(tzdb_version().to_owned()),
        ..EngineConfig::default()
    }
}

fn series(settings: &SchedulerSettings) -> SeriesConfig {
    let named = settings.series_jobs.iter().take(limits::SERIES_NAMED_JOBS_MAX);
    let named: BTreeSet<String> = named.map(|name| name.0.clone()).collect();
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    SeriesConfig {
        kept: settings.keep_series.get(),
        jobs_max: count(settings.series_jobs_max.get()),
        metrics: JobMetricsBound { most: count(settings.metrics_jobs_max.get()), named: named.clone() },
        named_jobs: named,
    }
}
