//! The page behind the links in messages that acknowledge an alert. A GET only shows the alert, because mail programs
//! and chats open links to check them; the form on the page acknowledges it.

use super::login::{fields, page, read_form};
use crate::Api;
use crate::auth;
use crate::browser::escaped;
use crate::error::ApiError;
use crate::rate_limit::CredentialRejected;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use punctual_engine::{AckLinkError, NamedAlert};

/// The field with the token of the link.
const TOKEN: &str = "t";

/// For people, so the path is not part of the OpenAPI document.
pub fn router() -> Router<Api> {
    Router::new().route("/acknowledge", get(show).post(acknowledge))
}

async fn show(State(api): State<Api>, request: Request) -> Response {
    let mut fields = fields(request.uri().query().unwrap_or_default().as_bytes());
    let token = fields.remove(TOKEN).unwrap_or_default();
    match api.access.alert_of_link(&token).await {
        Ok(alert) if alert.alert.acknowledged.is_some() => acknowledged(&alert),
        Ok(alert) => {
            let form = format!(
                "<form method=\"post\" action=\"/acknowledge\">\n<input type=\"hidden\" name=\"{TOKEN}\" \
                 value=\"{}\">\n<button>Acknowledge</button>\n</form>\n<p>An acknowledged alert is neither repeated \
                 nor escalated.</p>",
                escaped(&token)
            );
            page(StatusCode::OK, &format!("{}{form}", described(&alert)))
        }
        Err(error) => refusal(&error),
    }
}

async fn acknowledge(State(api): State<Api>, request: Request) -> Response {
    let source = auth::source(&request);
    let mut fields = match read_form(request).await {
        Ok(fields) => fields,
        Err(error) => return error.into_response(),
    };
    let token = fields.remove(TOKEN).unwrap_or_default();
    match api.access.acknowledge_by_link(&token, source).await {
        Ok(alert) => acknowledged(&alert),
        Err(error) => refusal(&error),
    }
}

fn described(NamedAlert { alert, .. }: &NamedAlert) -> String {
    let event = &alert.event;
    let (name, kind, text) = (escaped(&event.name), escaped(alert.kind.word()), escaped(&event.explanation));
    format!("<p><strong>{name}</strong> ({kind})</p>\n<p>{text}</p>\n<p>Since {}</p>\n", alert.since)
}

fn acknowledged(alert: &NamedAlert) -> Response {
    let by = alert.alert.acknowledged.as_ref().map_or("", |by| by.by.as_str());
    page(StatusCode::OK, &format!("{}<p>Acknowledged by {}.</p>", described(alert), escaped(by)))
}

fn refusal(error: &AckLinkError) -> Response {
    let wrong = |text: &str| format!("<p class=\"wrong\" role=\"alert\">{}</p>", escaped(text));
    match error {
        AckLinkError::Invalid => {
            CredentialRejected.mark(page(StatusCode::UNAUTHORIZED, &wrong(&error.to_string())))
        }
        AckLinkError::Expired | AckLinkError::Over => page(StatusCode::GONE, &wrong(&error.to_string())),
        AckLinkError::Failed(failed) => {
            tracing::warn!(%failed, "an alert could not be acknowledged by a link");
            ApiError::NotReady("the alert could not be acknowledged: try again".to_owned()).into_response()
        }
    }
}
