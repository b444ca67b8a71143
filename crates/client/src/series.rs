//! Figures over time, on the wire.

use crate::client::{Client, ClientError};
use crate::wire::wire;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

wire! {
    /// Figures over time, in columns: the n-th value of each column belongs to the n-th time.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SeriesPage as "SeriesPage" {
        /// What the columns hold.
        pub metric: String = one_of(&["executions", "duration", "lateness", "waiting"]),
        /// What the executions are divided by.
        pub by: String = one_of(&["all", "queue", "job_type", "job"]),
        /// The seconds of one step.
        pub step_secs: u64,
        /// When each step begins.
        pub times: Vec<Timestamp> = up_to(limits::SERIES_POINTS_MAX, list(time())),
        /// The queues, job types or jobs, those with the most executions first.
        pub series: Vec<SeriesBody> = up_to(limits::SERIES_SHOWN_MAX, list(the("Series"))),
        /// There are more than are listed.
        pub truncated: bool,
        /// Finished executions that are not counted yet. A few seconds' worth is usual; more if executions finish
        /// faster than they are rolled up.
        pub pending_executions: u64,
    }

    /// The figures of one queue, job type or job.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SeriesBody as "Series" {
        /// The name of the queue, job type or job. Null for all executions together (`by=all`), and for those of
        /// names without figures of their own.
        pub name: Option<String>,
        /// The owner of the job; null unless divided by job.
        pub owner_id: Option<String>,
        /// Executions that ended in the whole time.
        pub executions: u64,
        /// By name of the column. For `executions`: how many ended with each status. For the others: `count`,
        /// `mean_secs`, `p50_secs` and `p95_secs`, which are null where nothing was counted.
        pub columns: BTreeMap<String, Vec<Option<f64>>> = Schema::of("object")
            .with("additionalProperties", up_to(limits::SERIES_POINTS_MAX, list(number(0.0..=1e15).or_null())).value())
            .example(json!({"succeeded": [12.0, 0.0], "failed": [1.0, 0.0]})),
    }
}

impl Client {
    /// Figures over time. The parameters are those of the route, such as `by` and `since`.
    pub async fn series(&self, parameters: &[(&str, &str)]) -> Result<SeriesPage, ClientError> {
        self.send(self.request(Method::GET, "/series").query(parameters)).await
    }
}
