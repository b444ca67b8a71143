//! Secrets.

use super::super::operation::{Operation, Title};
use super::{IN_USE, NO_PARAMETERS, SECRETS, force, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::text;
use punctual_core::limits;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![list(), show(), set(), remove(), rotate()]
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: SECRETS, summary }
}

const NO_KEY: &str = "The server has no key for secrets, or there are too many secrets; or other requests keep changing the \
                      secret.";

fn on_secret(method: Method, title: Title) -> Operation {
    let name = text()
        .with("maxLength", limits::SECRET_NAME_BYTES_MAX)
        .about("The name of the secret.")
        .example("smtp-password");
    Operation::new(method, format!("{API_PREFIX}/secrets/{{name}}"), title).in_path("name", name)
}

fn list() -> Operation {
    let title = title("listSecrets", "List secrets");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/secrets"), title)
        .needs(UseCase::ReadSecrets)
        .about(
            "By name, without their values. A caller that is limited to an owner sees the secrets that jobs of the \
             owner may use.",
        )
        .fails(400, "A parameter is unknown or out of range.");
    paged_by_most(operation).answers(200, "One page.", "SecretPage")
}

fn show() -> Operation {
    on_secret(Method::GET, title("getSecret", "Get a secret"))
        .needs(UseCase::ReadSecrets)
        .about("Without its value.")
        .answers(200, "The secret.", "Secret")
        .fails(400, NO_PARAMETERS)
        .fails(404, "There is no such secret.")
}

fn set() -> Operation {
    on_secret(Method::PUT, title("setSecret", "Set a secret"))
        .needs(UseCase::SetSecret)
        .about(
            "Creates it, or replaces its value and the rules that the body names; other rules stay. Payloads refer to \
             it with an object such as `{\"$secret\": \"smtp-password\"}` in place of a string. Only the worker that \
             runs an execution gets the value.",
        )
        .takes("SetSecret", json!({"value": "correct horse battery staple", "owners": ["team-mail"]}))
        .answers(200, "The secret had another value before.", "Secret")
        .answers(201, "The secret is new.", "Secret")
        .fails(400, "The body cannot be read, or the request has an `Idempotency-Key`.")
        .fails(409, NO_KEY)
}

fn remove() -> Operation {
    on_secret(Method::DELETE, title("removeSecret", "Remove a secret"))
        .needs(UseCase::RemoveSecret)
        .about("Executions that refer to it fail when they are handed to a worker; those that run keep the value.")
        .in_query("force", force())
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "The secret is gone.")
        .fails(404, "There is no such secret.")
        .fails(409, IN_USE)
}

fn rotate() -> Operation {
    let title = title("rotateSecrets", "Encrypt secrets with the current key");
    Operation::new(Method::POST, format!("{API_PREFIX}/secret-keys/rotate"), title)
        .needs(UseCase::RotateSecrets)
        .about(
            "One bounded step: first secrets by name, then payloads of jobs. Repeat it with `next` as `after` until \
             `next` is null.",
        )
        .may_take("RotateSecrets", json!({}))
        .answers(200, "What the step has done.", "RotatedSecrets")
        .fails(409, "The server has no key for secrets.")
}
