//! Jobs in messages of a broker: the body of `POST /jobs`, or a CloudEvent with it as its data.

use crate::error::ApiError;
use crate::json::{self, DocumentShape};
use crate::submission::{Basis, job_spec};
use punctual_core::job::JobSpec;
use punctual_core::limits::INTAKE_MESSAGE_BYTES_MAX;
use punctual_core::names::name_problem;
use punctual_core::ports::IncomingMessage;
use punctual_core::time::Timestamp;
use punctual_engine::JobReader;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Reads jobs from messages of one place.
#[derive(Debug)]
pub struct MessageJobs {
    /// The stream, subject or queue: ids of messages are unique in it.
    pub place: String,
}

/// A CloudEvent in JSON, as far as it matters here.
#[derive(Deserialize)]
struct CloudEventParts<'a> {
    specversion: Option<&'a str>,
    id: Option<String>,
    source: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl JobReader for MessageJobs {
    fn read(&self, message: &IncomingMessage, now: Timestamp, owner: &str) -> Result<JobSpec, String> {
        let body = &message.body[..];
        if body.len() > INTAKE_MESSAGE_BYTES_MAX {
            return Err(format!(
                "the message has {} bytes; at most {INTAKE_MESSAGE_BYTES_MAX} are allowed",
                body.len()
            ));
        }
        let envelope =
            serde_json::from_slice::<CloudEventParts>(body).ok().filter(|event| event.specversion.is_some());
        let (job, key) = match envelope {
            None => (body, message.id.as_ref().map(|id| key(&self.place, id))),
            Some(event) => {
                let data =
                    event.data.ok_or("the CloudEvent has no data: it must contain the job, as JSON")?;
                let (Some(id), Some(source)) = (event.id, event.source) else {
                    return Err("the CloudEvent has no id or no source".to_owned());
                };
                (data.get().as_bytes(), Some(key(&source, &id)))
            }
        };
        let job = json::parse_job(job, DocumentShape::Job).map_err(|error| said(&error))?;
        let mut spec =
            job_spec(job, Basis::new(now, owner)).map_err(|found| said(&ApiError::invalid(found)))?;
        if spec.settings.idempotency_key.is_none() {
            spec.settings.idempotency_key = Some(key.ok_or(
                "the message has no id, so that a repeated delivery would run the job twice: set message_id, send a \
                 CloudEvent, or give the job an idempotency_key",
            )?);
        }
        Ok(spec)
    }
}

/// The idempotency key of a message. A long or unusual one is replaced by its digest.
fn key(source: &str, id: &str) -> String {
    let key = format!("{source}#{id}");
    if name_problem(&key).is_none() {
        return key;
    }
    let mut digest = Sha256::new();
    digest.update((source.len() as u64).to_le_bytes());
    digest.update(source);
    digest.update(id);
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is wrong, with all fields.
fn said(error: &ApiError) -> String {
    let problem = error.problem();
    let fields: Vec<String> =
        problem.errors.iter().map(|error| format!("{}: {}", error.field, error.detail)).collect();
    match (fields.is_empty(), problem.detail) {
        (false, _) => fields.join("; "),
        (true, Some(detail)) => detail,
        (true, None) => problem.title,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(id: Option<&str>, body: &str) -> Result<JobSpec, String> {
        let message =
            IncomingMessage { id: id.map(str::to_owned), body: body.into(), receipt: String::new() };
        MessageJobs { place: "jobs".to_owned() }.read(&message, Timestamp::EPOCH, "shop")
    }

    fn key_of(id: Option<&str>, body: &str) -> String {
        read(id, body).unwrap().settings.idempotency_key.unwrap()
    }

    #[test]
    fn a_job_alone_or_in_a_cloud_event_has_a_key_of_its_message() {
        assert_eq!(key_of(Some("7"), r#"{"name": "noop"}"#), "jobs#7");
        assert_eq!(key_of(None, r#"{"name": "noop", "idempotency_key": "mine"}"#), "mine");
        let event = r#"{"specversion": "1.0", "id": "4", "source": "/shop", "type": "order.placed",
            "data": {"name": "noop", "payload": {"order": 4}}}"#;
        assert_eq!(key_of(Some("7"), event), "/shop#4");
        let spec = read(None, event).unwrap();
        assert_eq!((spec.owner.as_str(), spec.payload.as_str()), ("shop", r#"{"order": 4}"#));
        assert_eq!(key_of(Some(&"x".repeat(300)), r#"{"name": "noop"}"#).len(), 64);
        assert_ne!(key("a", "b\n"), key("ab", "\n"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (id, body, words) in [
            (Some("1"), "hello", "expected value"),
            (Some("1"), "{}", "name"),
            (Some("1"), r#"{"name": "noop", "max_retrys": 1}"#, "max_retrys"),
            (Some("1"), r#"{"name": "noop", "delay": "1s", "interval": "1s"}"#, "interval"),
            (None, r#"{"name": "noop"}"#, "message_id"),
            (Some("1"), r#"{"specversion": "1.0", "id": "1", "source": "/a"}"#, "no data"),
            (Some("1"), r#"{"specversion": "1.0", "source": "/a", "data": {"name": "noop"}}"#, "no id"),
        ] {
            let error = read(id, body).unwrap_err();
            assert!(error.contains(words), "{body}: {error}");
        }
    }
}
