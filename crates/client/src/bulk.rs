//! Operations on the wire: one action on everything that a filter selects.

use crate::client::{Client, ClientError, PageQuery};
use crate::page::Page;
use crate::wire::wire;
use punctual_core::ids::OperationId;
use punctual_core::operation::{BulkAction, BulkTarget, OperationStatus};
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

wire! {
    /// An action on everything that a filter selects.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct BulkRequest as "BulkRequest" {
        /// What to do. Executions can be cancelled and retried only.
        pub action: BulkAction = words::<BulkAction>(),
        /// What to act on.
        #[serde(default)]
        pub target: BulkTarget = words::<BulkTarget>().otherwise("jobs"),
        /// The query parameters of `GET /jobs`, as fields; a parameter that can be repeated may be a list, and
        /// `payload` may be an object. For executions: those of `GET /executions` to cancel open ones, and those of
        /// `GET /dead-letters` to retry. Must not be empty unless `all` is true.
        #[serde(default)]
        pub filter: Map<String, Value> =
            Schema::of("object").with("additionalProperties", true).example(json!({"queue": "mail"})),
        /// Confirms that an empty filter means everything that the token may change.
        #[serde(default)]
        pub all: bool = flag().otherwise(false),
        /// For `update`: the fields to change in each job (JSON merge patch, RFC 7396).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub patch: Option<Box<RawValue>> = Schema::of("object").with("additionalProperties", true),
        /// Only answer what would be acted on. Nothing is stored.
        #[serde(default)]
        pub dry_run: bool = flag().otherwise(false),
    }

    /// The answer to a bulk request: what matched, and the operation that was started.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct BulkAnswer as "BulkAnswer" {
        /// The operation; null after a dry run.
        pub operation_id: Option<OperationId>,
        /// What is done.
        pub action: BulkAction = words::<BulkAction>(),
        /// What it is done to.
        pub target: BulkTarget = words::<BulkTarget>(),
        /// The status of the operation; null after a dry run.
        pub status: Option<OperationStatus> = words::<OperationStatus>(),
        /// How many jobs or executions match.
        pub matched: u64,
        /// Whether all were counted. Counting stops at 10,000, and after a bounded number of jobs.
        pub matched_is_exact: bool,
        /// The first of them.
        pub sample: Vec<BulkItem> = list(the("BulkItem")),
    }

    /// A job, execution or dead letter that matches.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BulkItem as "BulkItem" {
        /// The id of the job, of the execution, or of the occurrence that is dead.
        pub id: String,
        /// The name of the job.
        pub name: String,
        /// The status of the job or execution.
        pub status: String,
        /// Why the action would be refused now; omitted if it would not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub refusal: Option<String>,
    }

    /// An operation: an action on everything that a filter has selected.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct OperationBody as "Operation" {
        /// Its id.
        pub operation_id: OperationId,
        /// What is done.
        pub action: BulkAction = words::<BulkAction>(),
        /// What it is done to.
        pub target: BulkTarget = words::<BulkTarget>(),
        /// `RUNNING`, or how it has ended. A failed one could not go on, see `failure`.
        pub status: OperationStatus = words::<OperationStatus>(),
        /// It was cancelled and ends after its current step.
        pub cancelling: bool,
        /// The filter as it was sent. Without values of payloads, if the token may not read them.
        pub filter: Value = Schema::of("object").with("additionalProperties", true),
        /// The patch of an update. Without the payload, if the token may not read it.
        pub patch: Option<Value> = Schema::of("object").with("additionalProperties", true),
        /// How many matched when it was started.
        pub matched: u64,
        /// Whether all were counted.
        pub matched_is_exact: bool,
        /// How many were acted on.
        pub done: u64,
        /// How many were left unchanged.
        pub refused: u64,
        /// The first of those, with the reason of each.
        pub refusals: Vec<BulkRefusal> = list(the("BulkRefusal")),
        /// The name of the token or user that has started it.
        pub requested_by: String,
        /// When it was started. Jobs that were submitted later are not touched.
        pub created_at: Timestamp,
        /// The end of its last step.
        pub updated_at: Timestamp,
        /// When it ended.
        pub finished_at: Option<Timestamp>,
        /// Why it failed.
        pub failure: Option<String>,
    }

    /// Something that was left unchanged.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BulkRefusal as "BulkRefusal" {
        /// The id of the job, execution or occurrence.
        pub id: String,
        /// Why.
        pub reason: String,
    }
}

impl BulkRequest {
    pub fn new(action: BulkAction, filter: Map<String, Value>) -> Self {
        BulkRequest { action, target: BulkTarget::Jobs, filter, all: false, patch: None, dry_run: false }
    }
}

impl Client {
    /// Starts an operation, or with `dry_run` only counts what it would act on.
    pub async fn bulk(&self, request: &BulkRequest) -> Result<BulkAnswer, ClientError> {
        self.send(self.once("/bulk").json(request)).await
    }

    pub async fn operation(&self, id: OperationId) -> Result<OperationBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/bulk/{id}"))).await
    }

    /// Running operations first, the latest first.
    pub async fn operations(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<OperationBody>, ClientError> {
        self.send(self.request(Method::GET, "/bulk").query(&PageQuery { limit, cursor })).await
    }

    /// Stops an operation after its current step.
    pub async fn cancel_operation(&self, id: OperationId) -> Result<OperationBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/bulk/{id}/cancel"))).await
    }
}
