//! How long the server keeps what is over.

use crate::args::{self, Kept};
use punctual_engine::EngineConfig;
use std::time::Duration;

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct RetentionArgs {
    /// How long to keep jobs after they have finished, such as 30d; those with dead letters stay
    #[arg(long, env = "PUNCTUAL_KEEP_FINISHED_JOBS", default_value = "forever", value_name = "DURATION|forever", value_parser = args::kept)]
    keep_finished_jobs: Kept,
    /// How long to keep the history of executions, such as 90d
    #[arg(long, env = "PUNCTUAL_KEEP_HISTORY", default_value = "30d", value_name = "DURATION|forever", value_parser = args::kept)]
    keep_history: Kept,
}

impl RetentionArgs {
    pub fn config(self) -> EngineConfig {
        EngineConfig {
            jobs_kept: match self.keep_finished_jobs {
                Kept::For(time) => Some(time),
                Kept::Forever => None,
            },
            history_kept: match self.keep_history {
                Kept::For(time) => time,
                // Longer than any time there is.
                Kept::Forever => Duration::MAX,
            },
            ..EngineConfig::default()
        }
    }
}
