//! Notifications: channels, rules, silences, alerts and deliveries. No response has a secret value.

use super::named::{NameInCursor, removal, stored};
use super::tokens::{NoRequestKey, to_the_end};
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use punctual_client::{
    AddSilence, AlertBody, ChannelBody, ChannelTested, DeliveryBody, EscalationBody, MuteBody,
    NotificationsBody, Page, RuleBody, SelectorBody, SetChannel, SetRule, SilenceBody, Span,
};
use punctual_core::access::NamePattern;
use punctual_core::notify::{Channel, ChannelSecret, DeliveryState, JobSelector, Silence};
use punctual_core::time::Timestamp;
use punctual_engine::{
    ChannelTry, ChannelView, NamedAlert, NamedDelivery, NamedRule, NamedSilence, NotificationsView,
};
use std::time::Duration;

/// The prefixes of the cursors of these lists.
const CHANNELS: &str = "channels";
const RULES: &str = "notification-rules";
const SILENCES: &str = "silences";
const ALERTS: &str = "alerts";
const DELIVERIES: &str = "deliveries";

pub async fn list_channels(call: Call, mut query: QueryParams) -> Result<Json<Page<ChannelBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(CHANNELS), query.limit_or_most());
    query.finish()?;
    let page = call.cases.channels(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(channel_body).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(CHANNELS, page.next).await? }))
}

pub async fn show_channel(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<ChannelBody>, ApiError> {
    query.finish()?;
    Ok(Json(channel_body(call.cases.channel(&name).await?)))
}

pub async fn add_channel(
    call: Call,
    _: NoRequestKey,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let asked: SetChannel = json::parse(&body.bytes, DocumentShape::Channel)?;
    let name = asked.name.clone().ok_or_else(|| ApiError::field("name", "is required"))?;
    let channel = channel_of(asked, call.cases.now())?;
    to_the_end(async move {
        let (view, _) = call.cases.set_channel(&name, channel, true).await?;
        Ok((StatusCode::CREATED, Json(channel_body(view))).into_response())
    })
    .await
}

pub async fn set_channel(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoRequestKey,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let asked: SetChannel = json::parse(&body.bytes, DocumentShape::Channel)?;
    check_same_name(asked.name.as_deref(), &name)?;
    let channel = channel_of(asked, call.cases.now())?;
    to_the_end(async move {
        let (view, is_new) = call.cases.set_channel(&name, channel, false).await?;
        Ok(stored(is_new, channel_body(view)))
    })
    .await
}

fn check_same_name(given: Option<&str>, name: &str) -> Result<(), ApiError> {
    match given {
        Some(given) if given != name => {
            Err(ApiError::field("name", "must be the name in the path, or left out"))
        }
        _ => Ok(()),
    }
}

pub async fn remove_channel(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    let removal = removal(query)?;
    to_the_end(async move {
        call.cases.remove_channel(&name, removal).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

pub async fn test_channel(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoBody,
) -> Result<Json<ChannelTested>, ApiError> {
    let ChannelTry { message_id, result } = call.cases.test_channel(&name).await?;
    Ok(Json(ChannelTested { delivered: result.is_ok(), error: result.err(), message_id }))
}

pub async fn list_rules(call: Call, mut query: QueryParams) -> Result<Json<Page<RuleBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(RULES), query.limit_or_most());
    query.finish()?;
    let page = call.cases.notification_rules(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(rule_body).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(RULES, page.next).await? }))
}

pub async fn show_rule(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<RuleBody>, ApiError> {
    query.finish()?;
    Ok(Json(rule_body(call.cases.notification_rule(&name).await?)))
}

pub async fn add_rule(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Response, ApiError> {
    let asked: SetRule = json::parse(&body.bytes, DocumentShape::Object)?;
    let name = asked.name.clone().ok_or_else(|| ApiError::field("name", "is required"))?;
    stored_rule(call, name, asked, true).await
}

pub async fn set_rule(
    call: Call,
    IdInPath(name): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let asked: SetRule = json::parse(&body.bytes, DocumentShape::Object)?;
    check_same_name(asked.name.as_deref(), &name)?;
    stored_rule(call, name, asked, false).await
}

async fn stored_rule(
    call: Call,
    name: String,
    asked: SetRule,
    must_be_new: bool,
) -> Result<Response, ApiError> {
    let rule = asked.rule(call.cases.now());
    to_the_end(async move {
        let (rule, is_new) = call.cases.set_notification_rule(&name, rule, must_be_new).await?;
        Ok(stored(is_new, rule_body(rule)))
    })
    .await
}

pub async fn remove_rule(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    call.cases.remove_notification_rule(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn list_silences(call: Call, mut query: QueryParams) -> Result<Json<Page<SilenceBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(SILENCES), query.limit_or_most());
    query.finish()?;
    let page = call.cases.silences(NameInCursor::text(after.as_ref()), limit).await?;
    let now = call.cases.now();
    let items = page.items.into_iter().map(|silence| silence_body(silence, now)).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(SILENCES, page.next).await? }))
}

pub async fn add_silence(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Response, ApiError> {
    let AddSilence { jobs, starts_at, ends_at, duration, reason } =
        json::parse(&body.bytes, DocumentShape::Object)?;
    let now = call.cases.now();
    let ends_at = match (ends_at, duration) {
        (Some(at), None) => at,
        (None, Some(duration)) => starts_at.unwrap_or(now).plus(duration.get()),
        (Some(_), Some(_)) => {
            return Err(ApiError::field("duration", "cannot be combined with ends_at: give one of the two"));
        }
        (None, None) => return Err(ApiError::field("duration", "is needed, such as 2h (or give ends_at)")),
    };
    let jobs = jobs.unwrap_or_default().into();
    let silence = call.cases.add_silence(jobs, starts_at, ends_at, reason).await?;
    Ok((StatusCode::CREATED, Json(silence_body(silence, call.cases.now()))).into_response())
}

pub async fn remove_silence(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    call.cases.remove_silence(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn list_alerts(call: Call, mut query: QueryParams) -> Result<Json<Page<AlertBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(ALERTS), query.limit_or_most());
    query.finish()?;
    let page = call.cases.alerts(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(alert_body).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(ALERTS, page.next).await? }))
}

pub async fn acknowledge(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<AlertBody>, ApiError> {
    Ok(Json(alert_body(call.cases.acknowledge_alert(&id).await?)))
}

pub async fn list_deliveries(
    call: Call,
    mut query: QueryParams,
) -> Result<Json<Page<DeliveryBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(DELIVERIES), query.limit());
    query.finish()?;
    let page = call.cases.deliveries(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(delivery_body).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(DELIVERIES, page.next).await? }))
}

pub async fn show_delivery(
    call: Call,
    IdInPath(id): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<DeliveryBody>, ApiError> {
    query.finish()?;
    Ok(Json(delivery_body(call.cases.delivery(&id).await?)))
}

pub async fn replay(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<DeliveryBody>, ApiError> {
    Ok(Json(delivery_body(call.cases.replay_delivery(&id).await?)))
}

pub async fn show(call: Call, query: QueryParams) -> Result<Json<NotificationsBody>, ApiError> {
    query.finish()?;
    Ok(Json(state_body(call.cases.notifications().await?)))
}

pub async fn resume(call: Call, _: NoBody) -> Result<Json<NotificationsBody>, ApiError> {
    Ok(Json(state_body(call.cases.resume_notifications().await?)))
}

fn state_body(view: NotificationsView) -> NotificationsBody {
    let NotificationsView { stopped, pending, alerts } = view;
    NotificationsBody { stopped, pending: pending as u64, alerts: alerts as u64 }
}

/// The channel as asked for. Encrypted values are the server's own, and refused.
fn channel_of(asked: SetChannel, now: Timestamp) -> Result<Channel, ApiError> {
    let channel = asked.channel(now);
    let is_sealed = |value: Option<&ChannelSecret>| matches!(value, Some(ChannelSecret::Sealed { .. }));
    let sealed = channel.secrets().into_iter().find(|(_, value)| is_sealed(*value)).map(|(field, _)| field);
    match sealed {
        Some(field) => Err(ApiError::field(field, "must be a text, or {\"$secret\": \"NAME\"}")),
        None => Ok(channel),
    }
}

fn channel_body(view: ChannelView) -> ChannelBody {
    let ChannelView { name, channel, is_configured } = view;
    let is_hidden = |field: &str, value: &ChannelSecret| {
        matches!(value, ChannelSecret::Sealed { .. })
            || matches!(value, ChannelSecret::Plain(_)) && channel.is_hidden(field)
    };
    let given = || channel.secrets().into_iter().filter_map(|(field, value)| Some((field, value?)));
    let references = given().filter_map(|(field, value)| match value {
        ChannelSecret::Reference { name } => Some((field.to_owned(), name.clone())),
        ChannelSecret::Plain(_) | ChannelSecret::Sealed { .. } => None,
    });
    ChannelBody {
        hidden: given()
            .filter(|(field, value)| is_hidden(field, value))
            .map(|(field, _)| field.to_owned())
            .collect(),
        references: references.collect(),
        url: channel
            .url
            .as_ref()
            .filter(|_| !channel.is_hidden("url"))
            .and_then(|url| url.plain())
            .map(str::to_owned),
        name,
        kind: channel.kind,
        account_sid: channel.account_sid,
        username: channel.username,
        from: channel.from,
        to: channel.to,
        host: channel.host,
        port: channel.port,
        tls: channel.tls,
        template: channel.template,
        include_logs: channel.include_logs,
        mute: channel.mute.map(MuteBody::from),
        disabled: channel.disabled,
        configured: is_configured,
        created_at: channel.created_at,
        updated_at: channel.updated_at,
    }
}

fn selector_body(selector: JobSelector) -> SelectorBody {
    let texts = |patterns: Vec<NamePattern>| patterns.iter().map(|one| one.as_str().to_owned()).collect();
    let JobSelector { tags, queues, owners, job_types, names } = selector;
    SelectorBody {
        tags: texts(tags),
        queues: texts(queues),
        owners: texts(owners),
        job_types: texts(job_types),
        names: texts(names),
    }
}

fn rule_body(NamedRule { name, rule }: NamedRule) -> RuleBody {
    let span = |ms: Option<u64>| ms.map(|ms| Span::from(Duration::from_millis(ms)));
    RuleBody {
        name,
        events: rule.events,
        channels: rule.channels,
        jobs: selector_body(rule.jobs),
        failures: rule.failures,
        successes: rule.successes,
        late_by: span(rule.late_by_ms),
        longer_than: span(rule.longer_than_ms),
        longer_than_usual_percent: rule.longer_than_usual_percent,
        dead_letters_above: rule.dead_letters_above,
        queue_older_than: span(rule.queue_older_than_ms),
        limit_full_for: span(rule.limit_full_for_ms),
        ready_nodes_below: rule.ready_nodes_below,
        mute: rule.mute.map(MuteBody::from),
        escalate: rule.escalate.map(EscalationBody::from),
        disabled: rule.disabled,
        created_at: rule.created_at,
        updated_at: rule.updated_at,
    }
}

fn silence_body(NamedSilence { id, silence }: NamedSilence, now: Timestamp) -> SilenceBody {
    let active = silence.is_active(now);
    let Silence { jobs, starts_at, ends_at, reason, created_by, created_at } = silence;
    let jobs = selector_body(jobs);
    SilenceBody { silence_id: id, jobs, starts_at, ends_at, active, reason, created_by, created_at }
}

fn alert_body(NamedAlert { id, alert }: NamedAlert) -> AlertBody {
    let state = match (&alert.acknowledged, alert.notified_at) {
        (Some(_), _) => "acknowledged",
        (None, Some(_)) => "firing",
        (None, None) => "pending",
    };
    AlertBody {
        alert_id: id,
        state: state.to_owned(),
        kind: alert.kind,
        name: alert.event.name,
        job_id: alert.event.job_id,
        explanation: alert.event.explanation,
        since: alert.since,
        count: alert.count,
        channels: alert.channels,
        notified_at: alert.notified_at,
        acknowledged_by: alert.acknowledged.as_ref().map(|by| by.by.clone()),
        acknowledged_at: alert.acknowledged.map(|by| by.at),
    }
}

fn delivery_body(NamedDelivery { id, delivery }: NamedDelivery) -> DeliveryBody {
    let is_pending = delivery.state == DeliveryState::Pending;
    let kind = delivery.kind();
    DeliveryBody {
        delivery_id: id,
        channel: delivery.channel,
        to: delivery.to,
        held_by: delivery.held_by,
        state: delivery.state,
        kind,
        count: delivery.count,
        events: delivery.events.iter().filter_map(|event| serde_json::to_value(event).ok()).collect(),
        created_at: delivery.created_at,
        due_at: is_pending.then_some(delivery.due_at),
        attempts: delivery.attempts,
        last_attempt_at: delivery.last_attempt_at,
        last_error: delivery.last_error,
        finished_at: delivery.finished_at,
        replay_of: delivery.replay_of,
    }
}
