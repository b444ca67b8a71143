//! The channels: how a message is sent to each kind of receiver. It owns the form of the requests and the texts for
//! people; which message goes where, and when it is repeated, is decided elsewhere.

mod chat;
mod incident;
mod mail;
mod program;
mod template;
mod webhook;

use crate::{AddressGuard, HttpClient, OutboundError, RefusedAddress, client, tls_config};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::notify::{Channel, ChannelType, OutgoingMessage};
use punctual_core::ports::{Clock, Host, Notifier, SendError};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

const USER_AGENT: &str = concat!("punctual/", env!("CARGO_PKG_VERSION"));
/// Bytes of an answer that an error repeats.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_CHARS_SHOWN: usize = 200;

/// The operator's settings for channels.
#[derive(Debug, Clone, Default)]
pub struct ChannelsConfig {
    /// Permitted targets beyond the public internet.
    pub allow: Vec<crate::Allow>,
    /// PEM certificates that are trusted in addition to the well-known ones.
    pub root_certificates_pem: Vec<u8>,
    /// Channels of the configuration file, by name.
    pub configured: Vec<(String, Channel)>,
}

/// Sends messages to channels.
pub struct ChannelSender {
    /// For targets that users choose.
    guarded: HttpClient,
    /// For targets of the configuration.
    trusted: HttpClient,
    guard: Arc<AddressGuard>,
    /// Permits every address.
    open_guard: Arc<AddressGuard>,
    root_certificates_pem: Vec<u8>,
    clock: Arc<dyn Clock>,
    configured: Vec<(String, Channel)>,
}

impl fmt::Debug for ChannelSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelSender").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// A request to a receiver.
struct ChannelRequest {
    url: String,
    headers: Vec<(HeaderName, String)>,
    body: Vec<u8>,
}

impl ChannelRequest {
    fn json(url: impl Into<String>, body: &serde_json::Value) -> Self {
        let headers = vec![(header::CONTENT_TYPE, "application/json".to_owned())];
        ChannelRequest { url: url.into(), headers, body: body.to_string().into_bytes() }
    }

    fn form(url: impl Into<String>, fields: &[(&str, &str)]) -> Self {
        let field =
            |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        let body = fields.iter().map(field).collect::<Vec<_>>().join("&").into_bytes();
        let headers = vec![(header::CONTENT_TYPE, "application/x-www-form-urlencoded".to_owned())];
        ChannelRequest { url: url.into(), headers, body }
    }

    fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn login(self, user: &str, password: &str) -> Self {
        let credentials = BASE64.encode(format!("{user}:{password}"));
        self.with(header::AUTHORIZATION, format!("Basic {credentials}"))
    }
}

impl ChannelSender {
    pub fn new(config: ChannelsConfig, host: &Host) -> Result<Self, OutboundError> {
        let tls = tls_config(&config.root_certificates_pem)?;
        let everywhere = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|network| network.parse().ok());
        let guard = Arc::new(AddressGuard::new(config.allow));
        let open_guard = Arc::new(AddressGuard::new(everywhere.collect()));
        Ok(ChannelSender {
            guarded: client(guard.clone(), tls.clone(), host),
            trusted: client(open_guard.clone(), tls, host),
            guard,
            open_guard,
            root_certificates_pem: config.root_certificates_pem,
            clock: host.clock.clone(),
            configured: config.configured,
        })
    }

    async fn deliver(&self, message: &OutgoingMessage) -> Result<(), SendError> {
        let (client, guard) = match message.is_trusted {
            true => (&self.trusted, &self.open_guard),
            false => (&self.guarded, &self.guard),
        };
        let request = match message.channel.kind {
            ChannelType::Webhook => webhook::request(message)?,
            ChannelType::Slack | ChannelType::Teams | ChannelType::Discord => chat::request(message),
            ChannelType::PagerDuty => incident::pagerduty(message),
            ChannelType::Opsgenie => incident::opsgenie(message),
            ChannelType::Sms => {
                // A test has all numbers: a wrong one must not keep the others from theirs.
                let mut result = Ok(());
                for to in &message.channel.to {
                    let sent = self.call(client, chat::sms(message, to)).await;
                    result = result.and(sent.map_err(|error| error.about(to)));
                }
                return result;
            }
            ChannelType::Email => {
                return mail::send(message, guard, &self.root_certificates_pem).await;
            }
            ChannelType::Command => return program::run(message).await,
        };
        self.call(client, request).await
    }

    async fn call(&self, client: &HttpClient, request: ChannelRequest) -> Result<(), SendError> {
        let ChannelRequest { url, headers, body } = request;
        let mut builder = Request::post(&url).header(header::USER_AGENT, USER_AGENT);
        for (name, value) in headers {
            let value = HeaderValue::try_from(value).map_err(|_| failed(format!("invalid {name}")))?;
            builder = builder.header(name, value);
        }
        let request = builder.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|_| failed("the URL of the channel is not valid"))?;
        let response = client.request(request).await.map_err(|error| failed(chain(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let answer = answer.map(|body| body.to_bytes()).unwrap_or_default();
        let shown: String = String::from_utf8_lossy(&answer).chars().take(ANSWER_CHARS_SHOWN).collect();
        let said = format!("the receiver answered {status}: {}", shown.trim());
        Err(if status == StatusCode::GONE { SendError::Gone(said) } else { SendError::Failed(said) })
    }

    async fn in_time<T>(&self, sending: impl Future<Output = Result<T, SendError>>) -> Result<T, SendError> {
        let timeout = self.clock.sleep(limits::DELIVERY_TIMEOUT);
        match select(std::pin::pin!(sending), timeout).await {
            Either::Left((sent, _)) => sent,
            Either::Right(_) => {
                Err(failed(format!("no answer within {} seconds", limits::DELIVERY_TIMEOUT.as_secs())))
            }
        }
    }
}

#[async_trait]
impl Notifier for ChannelSender {
    async fn send(&self, message: OutgoingMessage) -> Result<(), SendError> {
        self.in_time(self.deliver(&message)).await
    }

    fn problems(&self, channel: &Channel) -> Vec<InvalidField> {
        let template = channel.template.as_deref().and_then(template::problem);
        let secret = channel.secret.as_ref().and_then(|secret| secret.plain()).and_then(webhook::problem);
        let mail = if channel.kind == ChannelType::Email { mail::problems(channel) } else { vec![] };
        let sms = if channel.kind == ChannelType::Sms { chat::sms_problems(channel) } else { vec![] };
        let template = template.map(|fix| InvalidField::new("template", fix));
        let secret = secret.map(|fix| InvalidField::new("secret", fix));
        template.into_iter().chain(secret).chain(mail).chain(sms).collect()
    }

    fn configured(&self) -> &[(String, Channel)] {
        &self.configured
    }

    async fn ping(&self, url: &str) -> Result<(), SendError> {
        let request = ChannelRequest { url: url.to_owned(), headers: vec![], body: vec![] };
        self.in_time(self.call(&self.trusted, request)).await
    }
}

fn failed(error: impl Into<String>) -> SendError {
    SendError::Failed(error.into())
}

/// An error with its causes, and the setting that permits what was refused.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut is_refused = error.is::<RefusedAddress>();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        is_refused |= error.is::<RefusedAddress>();
        cause = error.source();
    }
    if is_refused {
        text.push_str(ALLOW_ADVICE);
    }
    text
}

/// Follows a refused address in messages.
const ALLOW_ADVICE: &str = "; the operator can allow it with the setting notify.allow";

#[cfg(test)]
mod tests;
