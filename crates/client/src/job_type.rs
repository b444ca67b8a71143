//! Schemas of job types on the wire.

use crate::client::{Client, ClientError, segment};
use crate::page::Page;
use crate::wire::wire;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

wire! {
    /// The schema of a job type to set.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetJobType as "SetJobType" {
        /// A JSON Schema for the payloads of its jobs, at most 64 KiB. Unknown keywords are rejected, and references lead to
        /// `$defs` of the same schema only.
        pub schema: Box<RawValue> =
            any().example(json!({"type": "object", "required": ["customer"], "properties": {"customer": {"type": "integer"}}})),
        /// What the jobs do, for people; at most 200 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<String> = name().example("Sends the bill of one customer"),
    }

    /// A job type with a schema for its payloads.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct JobTypeBody as "JobType" {
        /// The job type.
        pub name: String = text().example("send-bill"),
        /// The JSON Schema, as it was set.
        pub schema: Box<RawValue> = any(),
        /// What the jobs do.
        pub description: Option<String> = text().example("Sends the bill of one customer"),
        /// Counts the times that it was set.
        pub version: u64,
        /// When it was last set.
        pub set_at: Timestamp,
        /// The token or user that last set it.
        pub set_by: String = text().example("deploy"),
        /// Whether a worker registered it. Workers do not change a schema that a person has set.
        #[serde(default)]
        pub by_worker: bool,
        /// Why payloads are not checked with it: an older release has stored it, and this one refuses it. Set a schema that it
        /// accepts.
        #[serde(default)]
        pub not_enforced: Option<String> = text(),
    }
}

impl Client {
    /// All job types with a schema, by name.
    pub async fn job_types(&self) -> Result<Page<JobTypeBody>, ClientError> {
        self.all_pages("/job-types").await
    }

    pub async fn job_type(&self, name: &str) -> Result<JobTypeBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/job-types/{}", segment(name)))).await
    }

    /// Sets the schema that payloads of new and changed jobs of this type must match.
    pub async fn set_job_type(&self, name: &str, job_type: &SetJobType) -> Result<JobTypeBody, ClientError> {
        self.send(self.request(Method::PUT, &format!("/job-types/{}", segment(name))).json(job_type)).await
    }

    pub async fn remove_job_type(&self, name: &str) -> Result<(), ClientError> {
        self.exchange(self.request(Method::DELETE, &format!("/job-types/{}", segment(name))))
            .await
            .map(|_| ())
    }
}
