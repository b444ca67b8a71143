//! Jobs that are identified by owner and name: created or replaced with one request.

use crate::client::{Client, ClientError, segment};
use crate::job::{JobBody, SubmitJob};
use crate::wire::wire;
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};

/// What a put does, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PutAction {
    Create,
    Update,
    None,
}

wire! {
    /// What putting a job by its name would do. The two descriptions have all defaults filled in, and an
    /// interval has the time that it counts from, so that they can be compared field by field.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct PlannedPut as "PlannedPut" {
        /// What would be done.
        pub action: PutAction = words::<PutAction>(),
        /// The job that would be changed; null if one would be created.
        pub job_id: Option<JobId>,
        /// The status of that job; null if one would be created.
        pub status: Option<JobStatus>,
        /// The job as it is; null if one would be created.
        pub before: Option<SubmitJob>,
        /// The job as it would be.
        pub after: SubmitJob,
    }
}

/// The job after a put.
#[derive(Debug, Clone)]
pub struct PutJob {
    pub created: bool,
    pub job: JobBody,
}

impl Client {
    /// The job of the token's owner that was put by this name; `None` if there is none.
    pub async fn named_job(&self, name: &str) -> Result<Option<JobBody>, ClientError> {
        match self.send(self.request(Method::GET, &path(name))).await {
            Ok(job) => Ok(Some(job)),
            Err(error) if error.is_not_found() => Ok(None),
            // A server of an earlier release only takes puts there.
            Err(error) if error.problem().is_some_and(|problem| problem.status == 405) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the job with this name, or replaces its description. The owner is the body's `owner_id`, or
    /// that of the token.
    pub async fn put_by_name(
        &self,
        name: &str,
        job: &(impl Serialize + ?Sized),
    ) -> Result<PutJob, ClientError> {
        let (status, body) = self.exchange(self.request(Method::PUT, &path(name)).json(job)).await?;
        Ok(PutJob { created: status == StatusCode::CREATED, job: self.parsed(status, &body)? })
    }

    /// What [`Client::put_by_name`] would do. Changes nothing.
    pub async fn plan_by_name(
        &self,
        name: &str,
        job: &(impl Serialize + ?Sized),
    ) -> Result<PlannedPut, ClientError> {
        self.send(self.request(Method::POST, &format!("{}/plan", path(name))).json(job)).await
    }
}

fn path(name: &str) -> String {
    format!("/jobs/by-name/{}", segment(name))
}
