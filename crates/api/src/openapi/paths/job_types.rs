//! Schemas of job types.

use super::super::operation::{Operation, Title};
use super::{JOB_TYPES, NO_PARAMETERS, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::text;
use punctual_core::limits;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![list(), show(), set(), remove()]
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: JOB_TYPES, summary }
}

fn on_job_type(method: Method, title: Title) -> Operation {
    let name = text()
        .with("maxLength", limits::NAME_BYTES_MAX)
        .about("The job type: at most 200 bytes, without invisible characters and white space at the ends, and not `.` or `..`.")
        .example("send-bill");
    Operation::new(method, format!("{API_PREFIX}/job-types/{{name}}"), title).in_path("name", name)
}

fn list() -> Operation {
    let operation = Operation::new(
        Method::GET,
        format!("{API_PREFIX}/job-types"),
        title("listJobTypes", "List job types with a schema"),
    )
    .needs(UseCase::ReadJobTypes)
    .about("By name, as far as they are in the caller's scope.")
    .fails(400, "A parameter is unknown or out of range.");
    paged_by_most(operation).answers(200, "One page.", "JobTypePage")
}

fn show() -> Operation {
    on_job_type(Method::GET, title("getJobType", "Get the schema of a job type"))
        .needs(UseCase::ReadJobTypes)
        .about("The schema as it was set, and who set it.")
        .answers(200, "The job type.", "JobType")
        .fails(400, NO_PARAMETERS)
        .fails(404, "The job type has no schema.")
}

fn set() -> Operation {
    on_job_type(Method::PUT, title("setJobType", "Set the schema of a job type"))
        .needs(UseCase::SetJobType)
        .about(
            "Payloads of jobs of this type are compared with it when they are submitted or changed, from now on here and within \
             two seconds on all servers. Stored jobs stay as they are. Built-in types check their payloads themselves.",
        )
        .takes(
            "SetJobType",
            json!({"schema": {"type": "object", "required": ["customer"], "properties": {"customer": {"type": "integer"}}}}),
        )
        .answers(200, "The job type had another schema before.", "JobType")
        .answers(201, "The job type had none.", "JobType")
        .fails(400, "The body cannot be read, or the request has an `Idempotency-Key`.")
        .fails(409, "There are too many job types with a schema, or other requests keep changing it.")
}

fn remove() -> Operation {
    on_job_type(Method::DELETE, title("removeJobType", "Remove the schema of a job type"))
        .needs(UseCase::RemoveJobType)
        .about("Payloads are no longer compared with it.")
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "The schema is gone.")
        .fails(404, "The job type has no schema.")
}
