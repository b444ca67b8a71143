//! Lists of jobs.

use crate::client::{Client, ClientError};
use crate::job::{JobBody, ScheduleType};
use crate::page::{JobsPage, Page};
use crate::priority::PriorityBody;
use punctual_core::job::JobStatus;
use reqwest::Method;
use serde::Serialize;

/// Filters for listing jobs. Absent filters match all.
#[derive(Debug, Clone, Default, Serialize)]
pub struct JobFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<PriorityBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_type: Option<ScheduleType>,
    /// The job must have all of these tags.
    #[serde(skip)]
    pub tags: Vec<String>,
    /// A substring of its name, job type or one of its tags, case-insensitive; or the beginning of its id,
    /// or at least 6 characters of it.
    #[serde(rename = "q", skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether its latest finished execution failed, timed out or was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<bool>,
    /// Fields of the payload, such as `customer` or `order.id`, with the scalars that they must have.
    #[serde(skip)]
    pub payload: Vec<(String, String)>,
    /// Further parameters, such as `not_tag` or `created_after`, with their values.
    #[serde(skip)]
    pub conditions: Vec<(String, String)>,
    /// `next_run`, `name`, `priority`, `last_run` or `lateness`, instead of the latest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Client {
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<JobBody>, ClientError> {
        let JobsPage { items, next_cursor, .. } = self.list_jobs(filter).await?;
        Ok(Page { items, next_cursor })
    }

    /// The same, with how far a sorted list has looked.
    pub async fn list_jobs(&self, filter: &JobFilter) -> Result<JobsPage, ClientError> {
        let tags: Vec<(&str, &str)> = filter.tags.iter().map(|tag| ("tag", tag.as_str())).collect();
        let fields = filter.payload.iter().map(|(field, value)| (format!("payload.{field}"), value.as_str()));
        let fields: Vec<(String, &str)> = fields.collect();
        let request = self.request(Method::GET, "/jobs").query(filter).query(&tags).query(&fields);
        self.send(request.query(&filter.conditions)).await
    }
}
