//! How long the server keeps what is over.

use crate::args::Kept;
use crate::config::SchedulerSettings;
use punctual_engine::EngineConfig;
use std::time::Duration;

pub fn config(settings: &SchedulerSettings) -> EngineConfig {
    EngineConfig {
        jobs_kept: match settings.keep_finished_jobs {
            Kept::For(time) => Some(time),
            Kept::Forever => None,
        },
        history_kept: match settings.keep_history {
            Kept::For(time) => time,
            // Longer than any time there is.
            Kept::Forever => Duration::MAX,
        },
        ..EngineConfig::default()
    }
}
