//! The settings of a scheduler: how long finished jobs, history and the audit log are retained, how far its clock may be
//! off, and how long it may be silent.

use punctual_config::args::Kept;
use punctual_config::{CoordinationSettings, SchedulerSettings};
use punctual_engine::EngineConfig;
use std::time::Duration;

pub fn config(settings: &SchedulerSettings, coordination: &CoordinationSettings) -> EngineConfig {
    EngineConfig {
        jobs_kept: match settings.keep_finished_jobs {
            Kept::For(time) => Some(time),
            Kept::Forever => None,
        },
        history_kept: match settings.keep_history {
            Kept::For(time) => time,
            // Longer than any possible time.
            Kept::Forever => Duration::MAX,
        },
        audit_kept: match settings.keep_audit {
            Kept::For(time) => Some(time),
            Kept::Forever => None,
        },
        clock_offset_max: settings.clock_offset_max.get(),
        member_ttl: coordination.ttl.get(),
        ..EngineConfig::default()
    }
}
